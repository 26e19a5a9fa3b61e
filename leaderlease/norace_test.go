//go:build !race

package leaderlease

const raceEnabled = false
