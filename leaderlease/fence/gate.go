package fence

import (
	"errors"
	"fmt"
	"sync"
)

// ErrStale is returned when a token is below one that was admitted before:
// its holder has been overtaken and must stop. Asking again never helps. Match
// it with errors.Is.
var ErrStale = errors.New("fence: stale token")

// ErrZeroToken is returned for the zero token, which no holder has. It shows a
// caller that never took a token, or writes without holding a lease. Match it
// with errors.Is.
var ErrZeroToken = errors.New("fence: zero token")

// StaleError says which token was refused, and which one overtook it.
type StaleError struct {
	Token   Token // the refused token
	Highest Token // the newest token admitted before it
}

// Error implements error.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v %v: %v was admitted before", ErrStale, e.Token, e.Highest)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Check is the rule of every gate: it returns nil if t may pass where highest
// is the newest token admitted so far, and otherwise [ErrZeroToken] or a
// [*StaleError]. An equal token passes, because the same holder writes again.
//
// Check alone is no fence. A resource that keeps highest in a store of its own has to
// check, raise highest and write in one atomic step, as [Gate.Do] does.
func Check(t, highest Token) error {
	switch {
	case t.IsZero():
		return ErrZeroToken
	case t.Less(highest):
		return &StaleError{Token: t, Highest: highest}
	default:
		return nil
	}
}

// Gate remembers the newest token that it has admitted, and refuses older
// ones. It stands in front of one resource. The zero value is ready and has
// admitted nothing. A Gate is safe for concurrent use and must not be copied
// after its first use.
type Gate struct {
	mu struct {
		sync.Mutex
		// highest never decreases.
		highest Token
	}
}

// NewGate returns a Gate that has admitted highest, for a resource that
// remembers it from an earlier run. The zero token stands for a resource without
// writes.
func NewGate(highest Token) *Gate {
	var g Gate
	g.mu.highest = highest
	return &g
}

// Admit admits t, or returns [ErrZeroToken] or a [*StaleError]. Once it has
// admitted t, every older token is refused.
//
// A nil result says that t was the newest token at the time of the call, no
// more. To write afterwards is a race: between the check and the write a newer
// token may be admitted and its holder may write, and the older write then
// lands on top of it, which is the very accident that the gate is there to
// prevent. Use [Gate.Do] to write; use Admit to close the door on older
// holders before reading, or where the resource orders its writes by itself.
func (g *Gate) Admit(t Token) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.admitLocked(t)
}

// Do admits t and runs write before any other token is admitted. It returns
// the error of [Gate.Admit], in which case write has not run, or that of write.
//
// The gate is held while write runs: other calls wait, and a call to the same
// gate from inside write never returns. Therefore write should be short and
// end by its own deadline, and it must not return while its effect may still
// come about; a request that timed out and is yet on its way is not fenced.
//
// A write that fails or panics leaves t admitted. It may have reached the
// resource in part, and to refuse an older holder is always safe.
func (g *Gate) Do(t Token, write func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.admitLocked(t); err != nil {
		return err
	}
	return write()
}

// Highest returns the newest token admitted so far, zero if there is none. It
// is for display and for [NewGate]; a decision made on it is made too late.
func (g *Gate) Highest() Token {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.highest
}

func (g *Gate) admitLocked(t Token) error {
	if err := Check(t, g.mu.highest); err != nil {
		return err
	}
	g.mu.highest = t
	return nil
}
