// Package rules has the directed tests of the protocol. Each file has the tests of one rule of
// docs/design.md. The package exports nothing. It is separate from leaderlease because leasetest
// needs modules that an embedder of the library does not need.
package rules
