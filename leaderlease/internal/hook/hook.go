// Package hook gives package leasetest what no embedder needs.
package hook

// Invalidate gives up the lease of a *leaderlease.Lease. Heartbeats that are sent later renew
// it. Package leaderlease sets the variable.
var Invalidate func(lease any)

// Save saves a promise. It has a type of its own, so that no PromiseStore outside of this library
// is a Saver because it has some method Run.
type Save func()

// Saver is a leaderlease.PromiseStore that runs saves itself, since a simulator has no
// goroutines. Run is called with the lease locked, and must not call save at once.
type Saver interface{ Run(save Save) }
