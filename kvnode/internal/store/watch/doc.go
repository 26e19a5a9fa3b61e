// Package watch passes the writes of a store to the watchers of clients.
//
// # Guarantees
//
// A watcher gets the events of its keys from its start revision on, each once and in order. All
// events of one revision come together. If a revision that it has not got is compacted, the watcher
// gets a response with the compacted revision and ends. No event is ever skipped silently.
//
// The watcher has got all events up to the Revision of a Response, unless they were compacted.
//
// Apply never waits for a watcher, and streams never wait for each other. The memory that a slow
// stream uses is bounded.
//
// # Structure
//
// As in etcd's watchableStore, a watcher is synced or behind (etcd: unsynced).
//
// Apply puts the events of each revision into the hub's inbox. The hub's goroutine takes them out,
// finds the synced watchers of each key, and appends to their streams' queues. A watcher that
// starts in the past is behind, and a synced watcher falls behind if the queue of its stream is
// full. The goroutine that reads the stream catches up for it: it reads the store's history, one
// response at a time. When the watcher has reached the hub's revision, it becomes synced.
//
// One scan of the history serves all watchers of a stream that are behind. The hub has one
// goroutine; streams and watchers have none.
//
// The inbox and the queues are bounded. They drop what does not fit, because the history has it
// anyway.
//
// # Requirements
//
// One goroutine calls Publish, in the order of revisions, after the store shows the revision. A
// stream is used by one goroutine at a time.
package watch
