// Package linz records the operations of a key-value service's clients, and checks
// that the history is linearizable: one copy of the data that serves one operation
// at a time could have given the same answers. It knows etcd's data model: each write
// makes a new revision of the whole store, and a key shows the revision that last changed it.
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
// A history that cannot be checked in time, or that is too large, is a violation too.
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
// # Unknown writes
//
// An unknown write with a value that was seen ends at the return of the first
// operation that saw it, and its revision is known. If its value was never seen,
// it is left out: no operation depends on whether it took effect, so it can be
// placed at the very end. What remains are unknown deletions of keys that were
// later found missing; they stay open to the end.
package linz

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Limits of the search for an order. Beyond them it may not end: see Keys for how to stay
// below.
const (
	MaxOps     = 2000 // operations on one key
	MaxClients = 10   // clients on one key
)

// DefaultBudget is how long Check searches for an order of one key's operations.
const DefaultBudget = 10 * time.Second

// Violation is an answer that a single copy of the data could not have given.
type Violation struct {
	Oracle string // porcupine, floor, session, revision, missing or size
	Key    string
	Detail string
}

// String shows the violation on one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s: key %s: %s", v.Oracle, v.Key, v.Detail)
}

// Report is the result of Check.
type Report struct {
	Ops, OK, Failed, Unknown int
	Keys                     int
	Violations               []Violation

	// pictures are the histories of keys without an order.
	pictures map[string][]porcupine.Operation
}

// Limits of a report that has violations already.
const (
	maxShown     = 10 // violations in an error's text
	maxUnordered = 5  // keys without an order, each of which may take all of its budget
)

func (r *Report) addf(oracle, key, format string, args ...any) {
	r.Violations = append(r.Violations, Violation{oracle, key, fmt.Sprintf(format, args...)})
}

// String sums the report up on one line.
func (r *Report) String() string {
	return fmt.Sprintf("%d operations (%d ok, %d failed, %d unknown) on %d keys, %d violations",
		r.Ops, r.OK, r.Failed, r.Unknown, r.Keys, len(r.Violations))
}

// ErrNotLinearizable is matched by the error of a Report with violations.
var ErrNotLinearizable = errors.New("linz: not linearizable")

// Err returns nil if there is no violation, else an error with the first ones.
func (r *Report) Err() error {
	if len(r.Violations) == 0 {
		return nil
	}
	var b strings.Builder
	for _, v := range r.Violations[:min(len(r.Violations), maxShown)] {
		fmt.Fprintf(&b, "\n  %v", v)
	}
	if more := len(r.Violations) - maxShown; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return fmt.Errorf("%w: %v%s", ErrNotLinearizable, r, b.String())
}

// Check checks a history and the final state. Budget limits the search
// for one key; 0 means DefaultBudget.
func Check(history []Op, final Final, budget time.Duration) *Report {
	if budget <= 0 {
		budget = DefaultBudget
	}
	rep := &Report{Ops: len(history), pictures: make(map[string][]porcupine.Operation)}
	if len(history) == 0 {
		return rep
	}
	ops := slices.SortedStableFunc(slices.Values(history), byCall)
	for i := range ops {
		switch ops[i].Outcome {
		case OK:
			rep.OK++
		case Failed:
			rep.Failed++
		case Unknown:
			rep.Unknown++
		}
	}
	checkFinal(ops, final, rep)
	ops = withFinal(ops, final)
	checkSessions(ops, rep)
	checkFloor(ops, rep)
	checkRevisions(ops, rep)
	checkOrder(ops, budget, rep)
	return rep
}

// checkOrder searches for an order of each key's operations, and stops after a few keys without
// one.
func checkOrder(ops []Op, budget time.Duration, rep *Report) {
	byKey := make(map[string][]Op)
	for i := range ops {
		byKey[ops[i].Key] = append(byKey[ops[i].Key], ops[i])
	}
	rep.Keys = len(byKey)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if len(rep.pictures) == maxUnordered {
			return
		}
		concluded := conclude(byKey[key])
		if !fits(key, concluded, rep) {
			continue
		}
		operations := translate(concluded)
		verdict := porcupine.CheckOperationsTimeout(model, operations, budget)
		if verdict == porcupine.Ok {
			continue
		}
		rep.addf("porcupine", key, "%s: no order found for %d operations in %v", verdict, len(operations), budget)
		rep.pictures[key] = operations
	}
}

// fits reports whether a key's history is small enough to be judged.
func fits(key string, ops []Op, rep *Report) bool {
	clients := make(map[int]bool)
	for i := range ops {
		clients[ops[i].Client] = true
	}
	// The read of the final state is one operation, and one client, more.
	if len(ops) > MaxOps+1 || len(clients) > MaxClients+1 {
		rep.addf("size", key, "%d operations of %d clients, the limits are %d and %d",
			len(ops), len(clients), MaxOps, MaxClients)
		return false
	}
	return true
}

func translate(ops []Op) []porcupine.Operation {
	operations := make([]porcupine.Operation, len(ops))
	for i := range ops {
		op := &ops[i]
		operations[i] = porcupine.Operation{
			ClientId: op.Client, Input: op, Call: int64(op.Call), Return: int64(op.Return),
		}
	}
	return operations
}

// pictureBudget limits the second search, which keeps the longest orders for the picture.
const pictureBudget = 10 * time.Second

// maxPictures is the maximum number of keys that are drawn.
const maxPictures = 3

// WritePictures draws the first keys without an order, each as an
// HTML page with the longest orders found, and returns the files' names.
func (r *Report) WritePictures(dir string) ([]string, error) {
	var files []string
	for _, key := range slices.Sorted(maps.Keys(r.pictures)) {
		if len(files) == maxPictures {
			break
		}
		_, info := porcupine.CheckOperationsVerbose(model, r.pictures[key], pictureBudget)
		name := filepath.Join(dir, fmt.Sprintf("history-%s.html", plain(key)))
		if err := writePicture(name, info); err != nil {
			return files, fmt.Errorf("draw the history of key %q: %w", key, err)
		}
		files = append(files, name)
	}
	return files, nil
}

func writePicture(name string, info porcupine.LinearizationInfo) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	return porcupine.Visualize(model, info, f)
}

// plain turns a key into a file name.
func plain(key string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, key)
}
