//go:build race

package waltest

// standardSeeds is the number of simulations; the race detector makes them more
// than ten times slower.
const standardSeeds = 5
