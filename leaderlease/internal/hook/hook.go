// Package hook gives packages leasetest and leasetrace access to a Lease that embedders must not have. It is apart
// from leasetest, which imports leaderlease, and internal, so that embedders cannot use it.
package hook

// Invalidate gives up the lease of a *leaderlease.Lease. Later heartbeats renew it. Package leaderlease sets the
// variable.
var Invalidate func(lease any)

// Save saves a promise. It is a type of its own, so that a PromiseStore of an embedder with some method Run is no
// Saver.
type Save func()

// Saver is a leaderlease.PromiseStore that runs saves itself, since a simulator has no goroutines. Run is called with
// the lease locked, and must not call save at once.
type Saver interface{ Run(save Save) }
