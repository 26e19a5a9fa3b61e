// Package boltfence is a fence for data in a bbolt database: per resource it
// stores the highest token that was admitted, next to the data it protects.
// Read package fence first; it says what fencing is for.
//
// # What it promises
//
// For one resource, the writes that committed through [Gate.Update] are in the
// order of their tokens, over any number of restarts and crashes, provided
// that
//   - every write to the resource goes through Update with the same bucket and
//     name, and touches nothing outside its transaction, and
//   - the database keeps what it committed. With bbolt's NoSync a crash may
//     lose the highest token, but never without the write that came with it.
//
// # Why a failed write leaves the highest token untouched
//
// The check, the new highest token and the caller's write are one bbolt
// transaction: all of it commits, or nothing does. If the write fails, nothing
// of it is in the database, so there is nothing that an older holder could
// overwrite, and the stored token still describes exactly the data beside it.
// To raise the token alone would take a second transaction, and a crash
// between the two would break that. (A gate in memory decides the other way,
// since it cannot undo what a failed write did.)
//
// A holder that bases its write on what it reads should read inside the same
// Update. One that must shut older holders out before it writes anything calls
// Update with a nil function, which raises the stored token and no more.
//
// # Names stay
//
// A stored token is never removed. A resource that is deleted and made again
// under the same name is still fenced against the holders of its former self,
// which is what one wants of a fence. Each name costs its length and 21 bytes.
package boltfence
