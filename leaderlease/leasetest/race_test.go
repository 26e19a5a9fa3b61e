//go:build race

package leasetest

// raceEnabled: the detector makes a search ten times slower, and finds
// nothing in one goroutine.
const raceEnabled = true
