//go:build !race

package waltest

// standardSeeds is the number of simulations.
const standardSeeds = 60
