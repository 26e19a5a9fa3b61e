// Package load puts a cluster under a load of reads and writes and records what
// its clients asked and saw, for package linz to judge.
package load
