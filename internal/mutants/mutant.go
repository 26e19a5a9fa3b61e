package main

// Mutant is one planted bug: the source with Old replaced by New, in File and
// wherever More says. Old occurs exactly once in its file.
type Mutant struct {
	// Rule names what is broken: V1–V9, L1–L8, reads, clocks, storage, membership, or a
	// part of kvnode.
	Rule string
	// Name says in words what the bug is.
	Name           string
	File, Old, New string
	More           []Edit
	// Pkg and Test are the directed test that catches it: a package path like
	// ./leaderlease and a -run pattern. Empty if only the simulator can.
	Pkg, Test string
	// Model says that Test checks a property with rapid: what it finds is then
	// neither minimised nor kept.
	Model bool
	// Sim says that the simulator is expected to catch it, too.
	Sim bool
	// Trace says that the trace of a simulation with the bug is refused by a judge
	// without it.
	Trace bool
	// Equivalent is the argument why nothing can catch it; then nothing must.
	Equivalent string
}

// Edit is a further replacement that a Mutant needs.
type Edit struct{ File, Old, New string }
