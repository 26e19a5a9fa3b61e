//go:build !race

package kvnode

const raceEnabled = false
