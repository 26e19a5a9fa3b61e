// Package hashcheck finds members whose stores are not what the log has made of
// the others': hashes of equal revisions that differ.
//
// # What it promises
//
// Members that have applied the same log are never said to differ: hashes are
// compared only if they are of the same revision and after the same compaction,
// both of which say all that a hash depends on, and a difference is believed when
// it shows twice. A member that does not answer, is of a version whose hash says nothing,
// or is compacted meanwhile, is left out, with the reason.
//
// Whose data is right is for the majority to say. Where no more than half of all
// members agree, nobody knows, and nobody is named.
//
// # What it relies on
//
// All versions hash alike (store.Hash), apart from 0, which earlier ones had for an
// empty store. A change of what is hashed gives members a way to say so first,
// or clusters of two versions raise the alarm.
package hashcheck
