// Package watch tells clients what changes in a store.
//
// # What it promises
//
// A watcher gets the events of its keys, from its start revision on, each once
// and in the order in which they were made, and all events of one revision
// together. If revisions that it has not got yet are compacted, it is told so
// and ends; nothing is ever left out silently.
//
// A revision that a Response carries is one up to which its watcher has got
// everything.
//
// Apply never waits for a watcher, nor does one stream for another. What is
// kept for a stream that does not keep up is bounded.
//
// # How it works
//
// Apply puts the events of each revision into an inbox. One goroutine, the
// hub's, takes them out, finds the watchers of each key and appends to their
// streams' queues. A watcher that gets its events in this way is synced. One
// that starts in the past, or whose stream's queue is full, is behind: whoever
// drains the stream reads for it from the history of the store, as much at a
// time as fits one response, and when it has come up to the hub, it is synced.
//
// So nobody waits: the inbox and the queues are bounded, and whatever does not
// fit is left to the history, which has it anyway.
//
// All watchers of a stream that are behind are served by one scan of the
// history, however many they are. There is one goroutine in a hub, and none in
// streams and watchers.
//
// # What it relies on
//
// Events are published after the store shows their revision, in order, by one
// goroutine. A stream is used by one goroutine at a time.
package watch
