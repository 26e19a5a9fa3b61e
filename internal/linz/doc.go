// Package linz records what the clients of a key-value service did and saw, and
// judges whether one copy of the data, serving one operation at a time, could
// have answered so. It knows etcd's data model: each write makes a new revision
// of the whole store, and a key shows the revision that last changed it.
//
// # What it promises
//
// Check returns a report without violations only if
//   - for each key there is an order of its operations, consistent with real
//     time, in which each of them answers what a single register would; a
//     write with an unknown outcome may take effect at any time after its
//     call, or never,
//   - no operation shows a revision older than one that was shown before it was
//     called, on any key, to any client,
//   - no two writes were acknowledged at one revision, and a revision of a key
//     has one value,
//   - at the end no acknowledged write is missing.
//
// A history that cannot be judged in time, or that is too large to be judged,
// is a violation too.
//
// # What it assumes
//
//   - All clients read one monotonic clock (they run in one process).
//   - Values are unique: no two writes of one history carry the same.
//   - A deletion reports the version it deleted (prev_kv), a compare-and-swap
//     that fails the version it found.
//   - A compare-and-swap expects a revision that an answer has shown, not a
//     guess, which would see an unknown write without saying so.
//   - Reads are linearizable; serializable ones are not recorded.
//
// # Why unknown writes do not drown the search
//
// An unknown write with a value that was seen ends at the return of the first
// operation that saw it, and its revision is known. If its value was never seen,
// it is left out: no operation depends on whether it took effect, so it can be
// placed at the very end. What remains are unknown deletions of keys that were
// later found missing; they stay open to the end.
package linz
