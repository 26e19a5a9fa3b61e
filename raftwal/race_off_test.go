//go:build !race

package raftwal

// raceEnabled says that tests run several times slower.
const raceEnabled = false
