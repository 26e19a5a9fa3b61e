// Package explore searches every state that a model can reach, breadth first, so
// that what it finds first is found by the fewest steps.
//
// A model packs its states into bytes, in one form for all states that differ by
// the names of their nodes only. A state that was seen is kept as a 128-bit hash
// and the number of the state it came from, which is enough to tell how it is
// reached: the steps are taken once more, and those kept whose hashes match. Two
// states with one hash would be taken for one; with 10^8 states that happens once
// in 10^22 searches.
package explore

import "time"

// Step is one step of a model: its kind, and what it is about.
type Step struct{ Kind, A, B, C uint8 }

// Marks are what a model has to say about a state, or the step that led to it: the
// goals that it reaches, a bit each, and Bad.
type Marks uint64

// Bad marks a state that must not be reached.
const Bad Marks = 1 << 63

// Model is what is searched. Its slices are its own and change with the next call.
type Model interface {
	// Start yields the states that a search begins with, as they are.
	Start(yield func(state []byte))
	// Expand yields the successors of state, as they are if plain, and else in the
	// form that is one for all states that are the same but for names.
	Expand(state []byte, plain bool, yield func(Step, []byte, Marks))
	// Canonical returns that form of a state that is as it is.
	Canonical(state []byte) []byte
	// Describe says in words what a step does, from one state to the next.
	Describe(state []byte, s Step, next []byte) string
}

// Limits end a search early. Zero is no limit.
type Limits struct {
	// States is how many states are kept; one more ends the search.
	States int
	// Depth is how many steps are taken.
	Depth int
	// Progress is told of each level.
	Progress func(*Result)
}

// Result is what a search has found.
type Result struct {
	States, Steps int
	// Depth is how many steps away the states are whose successors were all looked
	// at, with all that are nearer.
	Depth int
	// Exhausted: no state was left out, so there are no others within the bounds.
	Exhausted bool
	Elapsed   time.Duration
	// Bytes is what the seen states take, without the two levels that are searched.
	Bytes int
	// Level is the number of states of the newest level.
	Level int
	// Reached is, for each goal, one more than the level that first reached it.
	Reached [64]int
	// Fired counts the steps of each kind.
	Fired [256]int
	// Bad is how many steps lead to a bad state, 0 if none was found.
	Bad int
	// Trace tells these steps, Path has them, and Last is the bad state. They are not
	// there if the model tells its nodes apart, so that states that should be the
	// same but for names are not.
	Trace []string
	Path  []Step
	Last  []byte
}
