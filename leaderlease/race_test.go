//go:build race

package leaderlease

// raceEnabled: the detector makes a search ten times slower, and finds
// nothing in one goroutine.
const raceEnabled = true
