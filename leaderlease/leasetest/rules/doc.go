// Package rules holds the directed tests of the protocol, one family a file,
// named after the rule of docs/design.md that they defend; it exports nothing.
// They stand apart from leaderlease because leasetest needs packages that who
// embeds the library has no use for.
package rules
