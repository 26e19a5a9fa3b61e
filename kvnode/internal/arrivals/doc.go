// Package arrivals keeps those who have connected and not said yet who they are
// from costing much, and from keeping anybody else out.
//
// A Hall is where the connections of one port wait until they introduce: until a
// member's hello was taken, or a client has begun with requests. A connection that waits
// there is a guest.
//
// # What it promises
//
//   - No more guests wait than Bounds.Guests. If all places are taken a newcomer
//     gets in at the cost of the guest that has shown no sign of life for the
//     longest: it is cut. A peer or client that shakes hands quickly gets in, however many
//     others say nothing.
//   - If places run short no host keeps more than an eighth of them: from whoever
//     has more the guest to cut is taken. A host is an IPv4 address, or the /64 of
//     an IPv6 one.
//   - Before anything is computed for a handshake, Work takes a token of the host
//     and one of all hosts together. They come back when the guest introduce, so
//     handshakes that lead nowhere are bounded in a second, and those that lead
//     somewhere are not. A connection that does not get one is throttled.
//   - Hosts that are known have places and tokens of their own, which strangers
//     cannot take.
//   - With Config.Open all connections are bounded, those that have introduced
//     included: beyond it a guest is cut, or the newcomer is turned away.
//
// A connection that waits too long is its owner's business: all have a deadline
// for what they read first.
package arrivals
