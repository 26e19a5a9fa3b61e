//go:build race

package kvnode

// raceEnabled: the detector makes long stretches of virtual time ten times slower, and finds no more
// in them than in short ones. make test has the whole of them, without it, in simulations.
const raceEnabled = true
