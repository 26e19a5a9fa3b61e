// Package floodgate bounds what one connection of HTTP/2 may cost the member
// that serves it.
//
// # What it promises
//
// A client that asks for work and takes the answers is never slowed down,
// however fast it is. One that opens streams only to reset them, or sends frames
// that carry no request (PING, SETTINGS, CONTINUATION, WINDOW_UPDATE, PRIORITY,
// empty DATA), is first slowed down, then cut off:
//
//   - All connections together get frames like these through at 5,000 a second,
//     some 5 % of one processor, and whoever is late to that waits, for 0.3 s at
//     most at a time. While some wait, each connection has one a second besides.
//   - A connection that has sent 1,000 more than its requests account for is
//     closed, and so is one in debt that would have to wait for longer than 0.3 s.
//   - A member's connection is slowed down, and never closed: it carries what the
//     clients of that member do.
//   - While the server answers nobody, nobody is closed, for then deadlines
//     however short pass. Floods are slowed down, by up to 2 s for 4 KiB of them.
//   - All connections together have so many streams open, and one as many as all
//     leave free; more are refused.
//   - From a client that takes no answers nothing is read; nor, faster than it takes
//     them, from one that resets what it asked.
//   - Settings that keep gRPC busy for long, as many streams are open, close a
//     connection whoever it is.
//
// # How it tells
//
// Frames are counted in both directions, by their headers alone. Each HEADERS that
// the server sends is an answer, and pays for one frame that carries no request;
// each DATA pays for two, since gRPC's clients measure the path with a PING for
// each, and for two more with each 4 KiB, since Go's HTTP client sends window updates
// for that; and each PING and SETTINGS for its acknowledgement. So a client may reset
// what was answered, or half of what was not: it pays with the answers to the rest.
// Only what nothing pays for is counted against it. A stream that is half a second old
// may be reset without being held against the client, for that is what a deadline does.
// If no answer pays for it the reset waits, among its like and no longer than 0.3 s.
//
// gRPC's own bounds are behind this. It closes a connection for PINGs that come
// too often, and no longer reads from one for which it has 10,000 frames to
// handle; but each of those may hold a stream of 2 KiB, so that 20 connections
// make garbage collection take seconds, in which everybody who allocates waits,
// the raft loop, too.
package floodgate
