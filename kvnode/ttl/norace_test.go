//go:build !race

package ttl

const raceEnabled = false
