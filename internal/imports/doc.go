// Package imports holds the tests that keep the layers of this module apart;
// it exports nothing.
//
// # What they enforce
//
//   - leaderlease/core is arithmetic: no clock, goroutine, channel, lock,
//     logger, randomness or IO. It imports what is on a short list, and of
//     package time it uses durations only. A rule of the protocol can then be
//     tested by calling it, and replayed bit for bit.
//   - Whoever embeds leaderlease links raft and protobuf, and nothing that
//     this repository builds beside the library or needs for its tests.
//   - leaderlease/fence runs at the resource, which has no raft: it links the
//     standard library alone.
//
// Each rule is seen to fail, on source that breaks it or on a real package
// that has the forbidden dependency.
package imports
