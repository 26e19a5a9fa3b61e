package sim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

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
	// Suspicions counts suspicions because of unusual silence, FalseSuspicions wrong suspicions of any
	// kind.
	Suspicions, FalseSuspicions uint64
	ConfChanges                 uint64
	Crashes                     uint64
	Messages                    uint64
	Histories                   uint64
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

	// Volatile counts messages of bare nodes by the data in them that was not durable.
	Volatile [numTypes]volatileCount

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

// rule names a decision of docs/design.md and how often it was taken.
type rule struct {
	name string
	hits func(r *Result) uint64
}

// rules lists what a long run must have exercised. A rule that never decided
// anything was not tested.
var rules = []rule{
	{"V1 promises made", func(r *Result) uint64 { return r.Stats.Promises }},
	{"V1 probes refused", func(r *Result) uint64 { return r.Stats.RefusedProbes }},
	{"V2 grants given", func(r *Result) uint64 { return r.Stats.Grants }},
	{"V3 votes kept out", func(r *Result) uint64 { return r.Stats.Withheld.VoteIn }},
	{"V3 pre-votes kept out", func(r *Result) uint64 { return r.Stats.Withheld.PreVoteIn }},
	{"V3 late transfers kept out", func(r *Result) uint64 { return r.Stats.Withheld.TimeoutNowIn }},
	{"V4 vote requests kept in", func(r *Result) uint64 { return r.Stats.Withheld.VoteOut }},
	{"V4 pre-vote requests kept in", func(r *Result) uint64 { return r.Stats.Withheld.PreVoteOut }},
	{"V4 granted votes kept in", func(r *Result) uint64 { return r.Stats.Withheld.VoteRespOut }},
	{"V5 ticks withheld", func(r *Result) uint64 { return r.Stats.Withheld.Tick }},
	{"V5 own election held back", func(r *Result) uint64 { return uint64(r.HeldBack) }},
	{"V6 restart holds", func(r *Result) uint64 { return r.Stats.Refused[leaderlease.StatusRestartHold] }},
	{"V6 longer and shorter promises saved", func(r *Result) uint64 { return r.Saves }},
	{"Readys torn", func(r *Result) uint64 { return uint64(r.Torn) }},
	{"commit indexes that a log proved", func(r *Result) uint64 { return uint64(r.Recovered) }},
	{"L1 probes sent", func(r *Result) uint64 { return r.Stats.Probes }},
	{"L2 renewals", func(r *Result) uint64 { return r.Stats.Renewals }},
	{"L3 reads in joint configurations", func(r *Result) uint64 { return r.JointReads }},
	{"L4 no own-term commit", refused(leaderlease.StatusNoOwnTermCommit)},
	{"L4 not a voter", refused(leaderlease.StatusNotVoter)},
	{"L5 configuration pending", refused(leaderlease.StatusConfPending)},
	{"L6 releases", func(r *Result) uint64 { return r.Stats.Transfers }},
	{"L6 transferring", refused(leaderlease.StatusTransferring)},
	{"L6b resignations", func(r *Result) uint64 { return r.Resignations }},
	{"L6b successors at once", func(r *Result) uint64 { return r.Successors }},
	{"leaders suspected by silence", func(r *Result) uint64 { return r.Suspicions }},
	{"false suspicions", func(r *Result) uint64 { return r.FalseSuspicions }},
	{"L7 leases lost by step-down", func(r *Result) uint64 { return r.Stats.Losses[leaderlease.StatusNotLeader] }},
	{"margin", refused(leaderlease.StatusMargin)},
	{"expired", refused(leaderlease.StatusExpired)},
	{"clock faults", func(r *Result) uint64 { return r.Stats.ClockFaults }},
	{"clock disruptions", func(r *Result) uint64 { return r.Stats.Disruptions }},
	{"disk stalled", refused(leaderlease.StatusDiskStalled)},
	{"reads by lease", path(leaderlease.PathLease)},
	{"reads joined", path(leaderlease.PathJoined)},
	{"reads by read index", path(leaderlease.PathReadIndex)},
	{"reads forwarded", path(leaderlease.PathForwarded)},
	{"forwarded reads answered", func(r *Result) uint64 { return r.Stats.Answered }},
}

func refused(s leaderlease.Status) func(*Result) uint64 {
	return func(r *Result) uint64 { return r.Stats.Refused[s] }
}

func path(p leaderlease.Path) func(*Result) uint64 {
	return func(r *Result) uint64 { return r.Reads[p] }
}

// Uncovered returns the rules that have decided nothing.
func (r *Result) Uncovered() (names []string) {
	for _, rule := range rules {
		if rule.hits(r) == 0 {
			names = append(names, rule.name)
		}
	}
	for _, k := range slices.Concat(faultKinds, tornFaults) {
		if r.Faults[k.name] == 0 {
			names = append(names, "fault "+k.name)
		}
	}
	return names
}

// Coverage describes how often each rule has decided something.
func (r *Result) Coverage() string {
	var b strings.Builder
	for _, rule := range rules {
		fmt.Fprintf(&b, "%-34s %d\n", rule.name, rule.hits(r))
	}
	for _, k := range slices.Concat(faultKinds, tornFaults) {
		fmt.Fprintf(&b, "fault %-28s %d\n", k.name, r.Faults[k.name])
	}
	return b.String()
}

// trace follows a run: a hash over everything that happened, which is equal for
// equal runs, and the newest events for people to read.
type trace struct {
	hash   uint64
	events []traceEvent // a ring
	next   int
	// messages also keeps each message in the ring, not only in the hash.
	messages bool
}

// traceEvent is kept raw, because nearly all of them are never printed.
type traceEvent struct {
	at    time.Duration
	node  uint64
	what  string
	args  [4]uint64
	names string
}

const traceLen = 1 << 14

// mix adds values to the hash.
func (t *trace) mix(values ...uint64) {
	h := t.hash
	for _, v := range values {
		h ^= v
		h *= 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	t.hash = h
}

// note adds an event to the hash and to the time line. names has the names of args.
func (t *trace) note(at time.Duration, node uint64, what, names string, args ...uint64) {
	t.mix(uint64(at), node, uint64(len(what)))
	t.mix(args...)
	t.keep(at, node, what, names, args...)
}

func (t *trace) keep(at time.Duration, node uint64, what, names string, args ...uint64) {
	e := traceEvent{at: at, node: node, what: what, names: names}
	copy(e.args[:], args)
	if len(t.events) < traceLen {
		t.events = append(t.events, e)
		return
	}
	t.events[t.next] = e
	t.next = (t.next + 1) % traceLen
}

func (t *trace) message(at time.Duration, what string, node uint64, m *raftpb.Message) {
	t.mix(uint64(at), uint64(m.GetType()), m.GetFrom(), m.GetTo(), m.GetTerm(), m.GetIndex(), m.GetCommit(), uint64(len(m.GetEntries())))
	if t.messages {
		t.keep(at, node, what+m.GetType().String(), "from term index commit", m.GetFrom(), m.GetTerm(), m.GetIndex(), m.GetCommit())
	}
}

// timeline returns the events since start, one per line.
func (t *trace) timeline(start time.Duration) string {
	var b strings.Builder
	for i := range t.events {
		e := t.events[(t.next+i)%len(t.events)]
		if e.at >= start {
			e.print(&b)
		}
	}
	return b.String()
}

func (e *traceEvent) print(b *strings.Builder) {
	name := "       "
	if e.node != 0 {
		name = fmt.Sprintf("node %-2d", e.node)
	}
	fmt.Fprintf(b, "%14v  %s  %s", e.at, name, e.what)
	for i, name := range strings.Fields(e.names) {
		fmt.Fprintf(b, " %s=%d", name, e.args[i])
	}
	b.WriteByte('\n')
}
