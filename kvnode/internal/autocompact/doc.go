// Package autocompact compacts the history of a store by itself, in the two modes of etcd's
// auto-compaction.
//
// # What it promises
//
// Every member runs it and remembers revisions, and only the one that leads
// proposes: fenced by its term, so that a member that has been deposed meanwhile
// compacts nothing. A new leader has the memory already. Nothing younger than the
// policy says is compacted, by this member's clock, which needs to be right about
// durations only roughly: compaction frees room and decides nothing else.
//
// # How often
//
// By revisions: every five minutes. By time: a revision is noted each tenth of the
// period, or of an hour if that is less; once a whole period has been seen, it
// compacts every period, or every hour if that is less, to what was the newest
// revision a period and one note before.
package autocompact
