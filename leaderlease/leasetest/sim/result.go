package sim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// Violation is what an oracle found.
type Violation struct {
	// Oracle is stale, disjoint, guard, raft, porcupine, liveness, trace, misuse or
	// panic.
	Oracle string
	// At is when, in true time, Node where; 0 if no node in particular.
	At   time.Duration
	Node uint64
	What string
}

// Result is the result of a simulation.
type Result struct {
	Seed     uint64
	Schedule *Schedule
	// Hash is equal for equal runs.
	Hash uint64
	// Violation is what ended the run, nil if nothing did.
	Violation *Violation

	// Elapsed is how much time was simulated.
	Elapsed time.Duration
	// LeaseReads counts served TryReads, JointReads those in a joint
	// configuration, Reads the served Reads by path, StockReads those of nodes
	// with raft's own lease, Failed the reads that were refused.
	LeaseReads, JointReads uint64
	// Saves counts longest promises that were saved while a node ran.
	Saves              uint64
	Reads              [5]uint64
	StockReads, Failed uint64
	// Writes counts acknowledged writes, Entries committed ones.
	Writes, Entries uint64
	Elections       uint64
	Transfers       uint64
	// Resignations counts leaders that resigned, Successors the leaders that were elected at
	// once after a resignation.
	Resignations, Successors uint64
	// Alarms counts suspicions because of unusual silence, FalseAlarms wrong suspicions of any
	// kind.
	Alarms, FalseAlarms uint64
	ConfChanges         uint64
	Crashes             uint64
	Messages            uint64
	Histories           uint64
	// Faults counts injected faults by kind.
	Faults map[string]int
	// Stats adds up the counters of all Leases.
	Stats leaderlease.Stats
	// Recovery is how long the healed cluster took to serve lease reads.
	Recovery time.Duration
	// HeldBack counts elections that bound voters had to put off (V5).
	HeldBack int
	// Torn counts crashes between the entries and the hard state of a Ready, Recovered
	// processes that began with a commit index that only their log proved.
	Torn, Recovered int

	// Traces are the traces of all Leases, Judged is the number of checked events.
	Traces []leasetrace.Process
	Judged uint64

	trace   *trace
	picture func(io.Writer) error
}

// AllLeaseReads counts the reads served under a lease, by either call.
func (r *Result) AllLeaseReads() uint64 { return r.LeaseReads + r.Reads[leaderlease.PathLease] }

// Line describes the violation in one line, as test output and scripts want it.
func (r *Result) Line() string {
	v := r.Violation
	if v == nil {
		return fmt.Sprintf("ok seed=%d", r.Seed)
	}
	what, _, _ := strings.Cut(v.What, "\n")
	return fmt.Sprintf("VIOLATION seed=%d oracle=%s at=%v node=%d: %s", r.Seed, v.Oracle, v.At, v.Node, what)
}

// Timeline returns what happened in the last d of the run, one event per line.
func (r *Result) Timeline(d time.Duration) string {
	return r.trace.timeline(r.Elapsed - d)
}

// Require fails the test if an oracle found anything, and leaves the time line,
// the schedule and, where there is one, the picture of the history in the
// test's artifact directory.
func (r *Result) Require(t *testing.T) {
	t.Helper()
	if r.Violation == nil {
		return
	}
	dir := t.ArtifactDir()
	r.save(t, dir, "schedule.txt", func(w io.Writer) error {
		_, err := r.Schedule.WriteTo(w)
		return err
	})
	r.save(t, dir, "timeline.txt", func(w io.Writer) error {
		_, err := io.WriteString(w, r.Timeline(r.Elapsed))
		return err
	})
	if r.Traces != nil {
		r.save(t, dir, "leases.trace", func(w io.Writer) error { return leasetrace.Write(w, r.Traces) })
	}
	if r.picture != nil {
		r.save(t, dir, "history.html", r.picture)
	}
	t.Errorf("%s\n%s\nlast events:\n%s", r.Line(), r.Violation.What, r.Timeline(5*time.Second))
}

func (r *Result) save(t *testing.T, dir, name string, write func(io.Writer) error) {
	t.Helper()
	path := filepath.Join(dir, fmt.Sprintf("seed-%d-%s", r.Seed, name))
	f, err := os.Create(path)
	if err != nil {
		t.Errorf("save what the simulation found: %v", err)
		return
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		t.Errorf("write %s: %v", path, err)
		return
	}
	t.Logf("saved %s", path)
}

// Add adds the counts of another simulation. Recovery becomes the longer one of the two; Seed
// and Hash are no counts.
func (r *Result) Add(o *Result) {
	seed, hash, recovery := r.Seed, r.Hash, max(r.Recovery, o.Recovery)
	if r.Faults == nil {
		r.Faults = make(map[string]int)
	}
	addUp(reflect.ValueOf(r).Elem(), reflect.ValueOf(o).Elem())
	r.Seed, r.Hash, r.Recovery = seed, hash, recovery
}

func (r *Result) addStats(o leaderlease.Stats) {
	addUp(reflect.ValueOf(&r.Stats).Elem(), reflect.ValueOf(o))
}

// addUp adds numbers: alone, in arrays, in maps, and in fields that are exported.
func addUp(to, from reflect.Value) {
	switch {
	case !to.CanSet():
	case to.CanInt():
		to.SetInt(to.Int() + from.Int())
	case to.CanUint():
		to.SetUint(to.Uint() + from.Uint())
	case to.Kind() == reflect.Array:
		for i := range to.Len() {
			addUp(to.Index(i), from.Index(i))
		}
	case to.Kind() == reflect.Struct:
		for i := range to.NumField() {
			addUp(to.Field(i), from.Field(i))
		}
	case to.Kind() == reflect.Map:
		for key, n := range from.Seq2() {
			total := reflect.New(n.Type()).Elem()
			if was := to.MapIndex(key); was.IsValid() {
				total.Set(was)
			}
			addUp(total, n)
			to.SetMapIndex(key, total)
		}
	}
}
