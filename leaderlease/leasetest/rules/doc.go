// Package rules has the directed tests of the protocol. The name of a test begins with its rule
// of docs/design.md. The package exports nothing. It is separate from leaderlease because leasetest
// needs modules that an embedder of the library does not need.
package rules
