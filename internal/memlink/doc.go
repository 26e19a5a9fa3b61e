// Package memlink is a network in memory, with faults, for tests.
//
// It works inside testing/synctest bubbles: waiting on a connection is durably
// blocking, and delays and deadlines are in virtual time. Make the Network
// inside the bubble.
//
// A Network knows hosts by name: the host of a listener's address, and the host
// that a dialer names as its own. Faults are between two hosts, in one direction
// or both, and concern connections that exist and new ones alike:
//
//   - Cut holds what is sent until Heal, as TCP does when packets are lost, and
//     neither side hears of it. Dialling hangs.
//   - Delay adds to the time that everything takes.
//   - Reset ends the connections that exist, with an error on both sides.
//   - Damage flips bits.
//
// A connection holds 256 KiB each way that the other end has not read; then
// writing blocks.
package memlink
