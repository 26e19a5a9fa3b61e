//go:build race

package sim

// raceEnabled: the detector makes simulations ten times slower, and finds
// nothing in one goroutine.
const raceEnabled = true
