//go:build !race

package leasetest

const raceEnabled = false
