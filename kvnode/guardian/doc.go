// Package guardian has a member's process waited for by another one, its parent, which does
// nothing else, and tells the member's peers when it is dead. They need not wait then until
// what they have promised it has ended (rule V8 of docs/design.md).
//
// # What it promises
//
//   - An obituary is told only of a process that was the guardian's own child, and that the
//     system has said has exited or was killed (wait4, of that very process ID). A child that
//     is stopped, one whose pipe is closed, and one that cannot be waited for, is not dead.
//   - It carries a secret that the guardian has drawn for that process and kept to itself. The child, and with it
//     each peer, knows only the process ID, a hash of the secret. The next process has another secret.
//   - A guardian that dies takes its child along.
//
// # What it relies on
//
// A process that has ended executes no instruction any more. Where one can be
// resurrected (checkpoint and restore, a clone of its machine, a debugger that restarts it),
// no guardian may be used: an obituary of it may be false, and a second leader elected beside a
// lease that is valid. docs/operations/change.md says when.
//
// Guard is the parent's half, Inherit the child's. They are joined by a pair of sockets that
// the child inherits, and not by its environment, which its own children would inherit.
package guardian
