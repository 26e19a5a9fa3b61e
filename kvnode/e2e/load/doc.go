// Package load puts a cluster under a load of reads and writes and records what
// its clients asked and saw, for package linz to judge.
//
// Each request is made once. A read that fails tells nothing; a write that fails
// may take effect later, unless it is certain that it never left the client.
package load
