// Package hook gives tests and simulators access to a Lease that embedders must not have. It is no part of leasetest,
// because leaderlease imports it and leasetest imports leaderlease.
package hook

// Invalidate gives up the lease of a *leaderlease.Lease. Later heartbeats renew it. Package leaderlease sets the
// variable.
var Invalidate func(lease any)

// Save saves a promise. It is a named type, so that an embedder's PromiseStore with a method Run is not taken for a
// Saver.
type Save func()

// Saver is a leaderlease.PromiseStore that runs saves itself, for a simulator without goroutines. Run is called with
// the lease locked, so it must return before save is called.
type Saver interface{ Run(save Save) }
