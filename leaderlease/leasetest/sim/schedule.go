package sim

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schedule is everything that decides a run: the parameters and the numbered
// faults. Its text form can be kept in a file, edited and replayed.
type Schedule struct {
	Seed     uint64
	Duration time.Duration
	Swarm    Swarm
	Faults   []Fault
	// Expect names the oracle that must find something, because Swarm breaks an
	// assumption on purpose; empty if nothing may be found.
	Expect string
}

// Fault is one thing that goes wrong, or is done to the cluster on purpose.
// Its other parameters are drawn from the stream of its number, so a fault does the same with or
// without other faults.
type Fault struct {
	N    int
	At   time.Duration
	Kind string
	// For is how long it lasts, where that applies.
	For time.Duration
}

// DrawSchedule draws the schedule of a seed.
func DrawSchedule(seed uint64, d time.Duration) *Schedule {
	s := &Schedule{Seed: seed, Duration: d, Swarm: drawSwarm(stream(seed, streamSwarm))}
	drawShort(stream(seed, streamShort), &s.Swarm)
	s.drawFaults(stream(seed, streamPlan))
	drawDisks(stream(seed, streamDisks), &s.Swarm)
	s.drawTorn(stream(seed, streamTorn))
	return s
}

// without returns a copy of s that lacks the faults in drop.
func (s *Schedule) without(drop map[int]bool) *Schedule {
	c := *s
	c.Faults = slices.DeleteFunc(slices.Clone(s.Faults), func(f Fault) bool { return drop[f.N] })
	return &c
}

// WriteTo writes s as text.
func (s *Schedule) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\nduration %v\n", s.Seed, s.Duration)
	if s.Expect != "" {
		fmt.Fprintf(&b, "expect %s\n", s.Expect)
	}
	for f, v := range reflect.ValueOf(&s.Swarm).Elem().Fields() {
		if !v.IsZero() {
			fmt.Fprintf(&b, "set %s %s\n", f.Name, format(v))
		}
	}
	for _, f := range s.Faults {
		fmt.Fprintf(&b, "fault %d %v %s %v\n", f.N, f.At, f.Kind, f.For)
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// ParseSchedule reads what WriteTo wrote. Empty lines and lines that begin with
// # are skipped.
func ParseSchedule(r io.Reader) (*Schedule, error) {
	s := &Schedule{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := s.parseLine(words); err != nil {
			return nil, fmt.Errorf("sim: schedule line %d %q: %w", n, lines.Text(), err)
		}
	}
	return s, lines.Err()
}

func (s *Schedule) parseLine(words []string) (err error) {
	switch {
	case words[0] == "seed" && len(words) == 2:
		s.Seed, err = strconv.ParseUint(words[1], 10, 64)
		return err
	case words[0] == "duration" && len(words) == 2:
		s.Duration, err = time.ParseDuration(words[1])
		return err
	case words[0] == "expect" && len(words) == 2:
		s.Expect = words[1]
		return nil
	case words[0] == "set" && len(words) == 3:
		return s.Swarm.set(words[1], words[2])
	case words[0] == "fault" && len(words) == 5:
		return s.parseFault(words[1:])
	}
	return fmt.Errorf("want seed, duration, expect, set or fault with their values")
}

func (s *Schedule) parseFault(words []string) error {
	n, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	at, err := time.ParseDuration(words[1])
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(words[3])
	if err != nil {
		return err
	}
	if kindOf(words[2]) == nil {
		return fmt.Errorf("no fault is called %q", words[2])
	}
	s.Faults = append(s.Faults, Fault{N: n, At: at, Kind: words[2], For: d})
	return nil
}

// format returns a parameter as text. Sets of nodes are binary.
func format(v reflect.Value) string {
	if set, ok := v.Interface().(uint64); ok {
		return strconv.FormatUint(set, 2)
	}
	return fmt.Sprint(v.Interface())
}

// set sets the parameter with a name. Case and underscores in it do not matter.
func (w *Swarm) set(name, text string) (err error) {
	name = strings.ReplaceAll(name, "_", "")
	v := reflect.ValueOf(w).Elem().FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
	if !v.IsValid() {
		return fmt.Errorf("no parameter is called %q", name)
	}
	switch p := v.Addr().Interface().(type) {
	case *uint64:
		*p, err = strconv.ParseUint(text, 2, 64)
	case *time.Duration:
		*p, err = time.ParseDuration(text)
	default:
		_, err = fmt.Sscan(text, p)
	}
	return err
}

// Swarm has the parameters of one run, which are drawn for each seed. Parameters that never change
// hide bugs: with one promise length and one network, raft's own timeouts mask a missing guard.
type Swarm struct {
	// The group. Nodes are numbered from 1: voters, then learners, then spares.
	Voters, Learners, Spares int
	Tick                     time.Duration
	ElectionTick             int
	HeartbeatTick            int

	// The lease. DriftPPM is the rate error that clocks really have.
	D, Skew    time.Duration
	DriftPPM   int
	LongD      bool
	NoMargin   bool   // negative control: reads are served to the end of the lease
	BeyondPPM  int    // negative control: clocks err by this much more than claimed
	StopsClock bool   // negative control: a suspended leader's clock stands still
	Without    string // negative control: nodes omit this rule, a field of leasetest.Rules

	// Separate and OneLog are the nodes with disks of these kinds; all others write a Ready
	// atomically. Tears is the percentage of crashes that tear a Ready.
	Separate, OneLog uint64
	Tears            int
	// Bare nodes do only what raft asks for: a crash may lose a commit index that covers
	// applied changes, and vote answers carry no commit hints. Reads must still be right;
	// liveness is not checked.
	Bare bool

	// RaftAlone has all nodes run bare RawNodes, without the library, by all rules but CommitHints,
	// or with Bare by those for safety only.
	// MaxSize, MaxCommitted and MaxInflight are raft's limits then, PreVote and CheckQuorum its
	// options. Tell is the longest time until raft is told what is applied, SlowTell the
	// percentage of entries of which it is told much later.
	RaftAlone             bool
	MaxSize, MaxCommitted uint64
	MaxInflight           int
	NoPreVote, NoQuorum   bool
	Tell                  time.Duration
	SlowTell              int

	// How nodes run: one bit per node, bit 1 for node 1.
	Plain, Stock, Async, Queue, Arrival uint64
	// Short are the nodes that ask for promises of half of D, and make promises of D.
	Short uint64
	// Suspects are the nodes that act upon closed connections, Learns those that also act upon
	// silence.
	Suspects, Learns uint64
	// The longest delays. Each one is drawn anew, from zero.
	Disk, Apply, Step, Latency time.Duration

	// The load: time between two writes, reads and rounds of probing.
	Keys               int
	Write, Read, Probe time.Duration
	// Gap is the mean time between two faults.
	Gap time.Duration
}

// nodes returns how many nodes there are.
func (w *Swarm) nodes() int { return w.Voters + w.Learners + w.Spares }

// electionTimeout is the least time without a leader before raft campaigns.
func (w *Swarm) electionTimeout() time.Duration { return time.Duration(w.ElectionTick) * w.Tick }

// keepAssumptions takes back what a negative control has broken.
func (w *Swarm) keepAssumptions() {
	w.NoMargin, w.BeyondPPM, w.StopsClock, w.Stock, w.Without = false, 0, false, 0, ""
}

func has(set uint64, id uint64) bool { return set>>id&1 == 1 }

// drawSwarm draws the parameters of a run.
func drawSwarm(r *rand.Rand) Swarm {
	w := Swarm{
		Voters:        pick(r, 1, 2, 3, 3, 3, 3, 3, 4, 5, 5, 5, 6, 7),
		Learners:      pick(r, 0, 0, 0, 1, 2),
		Spares:        pick(r, 0, 0, 1, 2, 3),
		Tick:          time.Duration(pick(r, 20, 50, 100, 100, 100, 200)) * time.Millisecond,
		ElectionTick:  pick(r, 5, 10, 10, 10, 15, 20),
		HeartbeatTick: 1,
		Keys:          pick(r, 1, 2, 3),
		Gap:           time.Duration(pick(r, 1, 2, 2, 3, 5)) * time.Second,
	}
	drawLease(r, &w)
	drawNodes(r, &w)
	et := w.electionTimeout()
	w.Latency = pick(r, time.Millisecond, 2*time.Millisecond, 5*time.Millisecond, et/50)
	w.Write = between(r, 50*time.Millisecond, 400*time.Millisecond)
	w.Read = between(r, 50*time.Millisecond, 200*time.Millisecond)
	w.Probe = between(r, 10*time.Millisecond, 25*time.Millisecond)
	return w
}

func drawLease(r *rand.Rand, w *Swarm) {
	if w.ElectionTick >= 15 && r.IntN(2) == 0 {
		w.HeartbeatTick = 2
	}
	floor := time.Duration(w.ElectionTick-1) * w.Tick
	w.D = floor
	switch r.IntN(4) {
	case 0:
		w.D = between(r, floor*3/4, floor)
	case 1:
		w.LongD = true
		w.D = between(r, floor, 3*floor)
	}
	w.DriftPPM = pick(r, 0, 1_000, 50_000, 83_333, 83_333, 150_000, 150_000)
	w.Skew = driftSkew(w.D, w.DriftPPM)
	if r.IntN(3) == 0 {
		w.Skew += between(r, 0, w.D/10)
	}
	// Two heartbeats must fit between the probe and the margin.
	beats := 2 * time.Duration(w.HeartbeatTick) * w.Tick
	if w.D-w.Skew < beats {
		w.D, w.LongD = floor, false
		w.DriftPPM = min(w.DriftPPM, 83_333)
		w.Skew = driftSkew(w.D, w.DriftPPM)
	}
}

// drawShort makes some nodes ask for shorter promises than the others, as in an upgrade, and
// some act upon connections that end.
func drawShort(r *rand.Rand, w *Swarm) {
	if d := w.shortD(); r.IntN(3) == 0 && d-driftSkew(d, w.DriftPPM) >= 4*time.Duration(w.HeartbeatTick)*w.Tick {
		w.Short = r.Uint64() & (uint64(1)<<(w.nodes()+1) - 2)
	}
	all := uint64(1)<<(w.nodes()+1) - 2
	w.Suspects = pick(r, 0, ^uint64(0), ^uint64(0), r.Uint64()) & all
	w.Learns = pick(r, 0, ^uint64(0), r.Uint64()) & all
}

func (w *Swarm) shortD() time.Duration { return w.D * 11 / 20 }

// driftSkew is the least margin that covers a rate error of ppm, with a microsecond for the
// rounding of readings.
func driftSkew(d time.Duration, ppm int) time.Duration {
	rho := float64(max(ppm, 1)) / 1e6
	return time.Duration(float64(d)*2*rho/(1+rho)) + time.Microsecond
}

func drawNodes(r *rand.Rand, w *Swarm) {
	all := uint64(1)<<(w.nodes()+1) - 2
	some := func(never int) uint64 {
		switch r.IntN(never + 2) {
		case 0:
			return all
		case 1:
			return r.Uint64() & all
		default:
			return 0
		}
	}
	w.Async, w.Queue, w.Arrival = some(1), some(1), some(1)
	if r.IntN(6) == 0 {
		w.Plain = 1 << (1 + r.IntN(w.nodes()))
		if r.IntN(2) == 0 {
			w.Plain |= 1 << (1 + r.IntN(w.nodes()))
		}
	}
	// Slower than this, and a healthy cluster could not keep its lease.
	w.Disk = pick(r, 0, 0, 1, w.Tick/50, w.Tick/5)
	w.Apply = pick(r, 0, 0, w.Tick/20, w.Tick/2)
	w.Step = pick(r, 0, w.Tick/50, w.Tick/5, w.Tick/2)
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func between(r *rand.Rand, lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(r.Int64N(int64(hi-lo)+1))
}

// stream returns the random numbers of one concern. Concerns do not share a
// stream, so that taking one out leaves the others as they were.
func stream(seed, concern uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, concern)) }

// The concerns. Fault number n has the stream streamFault+n, and
// streamTears+n for which of its crashes tear a Ready.
const (
	streamSwarm uint64 = iota + 1
	streamPlan
	streamNetwork
	streamDisk
	streamWrites
	streamReads
	streamProbes
	streamClocks
	streamCompacts
	streamShort
	streamDeaths
	streamDisks
	streamTorn
	streamRaft
	streamFault = 1 << 20
	streamTears = 1 << 40
)
