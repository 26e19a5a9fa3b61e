//go:build race

package main

// raceEnabled: the detector sees nothing of what go builds.
const raceEnabled = true
