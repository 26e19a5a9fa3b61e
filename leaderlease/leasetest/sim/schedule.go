package sim

import (
	"bufio"
	"fmt"
	"io"
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
// What it leaves open is drawn from the stream of its number, so a fault does
// the same whatever other faults there are.
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
	s.Faults = drawFaults(stream(seed, streamPlan), &s.Swarm, d)
	drawDisks(stream(seed, streamDisks), &s.Swarm)
	drawTorn(stream(seed, streamTorn), s)
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
	for _, f := range s.Swarm.fields() {
		fmt.Fprintf(&b, "set %s %s\n", f.name, f.format())
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

// field is one parameter in the text form.
type field struct {
	name  string
	value any // a pointer
}

func (w *Swarm) fields() []field {
	return []field{
		{"voters", &w.Voters},
		{"learners", &w.Learners},
		{"spares", &w.Spares},
		{"tick", &w.Tick},
		{"election_tick", &w.ElectionTick},
		{"heartbeat_tick", &w.HeartbeatTick},
		{"d", &w.D},
		{"skew", &w.Skew},
		{"drift_ppm", &w.DriftPPM},
		{"long_d", &w.LongD},
		{"no_margin", &w.NoMargin},
		{"beyond_ppm", &w.BeyondPPM},
		{"stops_clock", &w.StopsClock},
		{"forgets", &w.Forgets},
		{"mute", &w.Mute},
		{"hard_state_alone", &w.HardStateAlone},
		{"separate", &w.Separate},
		{"one_log", &w.OneLog},
		{"tears", &w.Tears},
		{"bare", &w.Bare},
		{"plain", &w.Plain},
		{"stock", &w.Stock},
		{"async", &w.Async},
		{"queue", &w.Queue},
		{"arrival", &w.Arrival},
		{"short", &w.Short},
		{"suspects", &w.Suspects},
		{"learns", &w.Learns},
		{"disk", &w.Disk},
		{"apply", &w.Apply},
		{"step", &w.Step},
		{"latency", &w.Latency},
		{"keys", &w.Keys},
		{"write", &w.Write},
		{"read", &w.Read},
		{"probe", &w.Probe},
		{"gap", &w.Gap},
	}
}

func (w *Swarm) set(name, text string) error {
	for _, f := range w.fields() {
		if f.name == name {
			return f.parse(text)
		}
	}
	return fmt.Errorf("no parameter is called %q", name)
}

func (f field) format() string {
	switch v := f.value.(type) {
	case *int:
		return strconv.Itoa(*v)
	case *bool:
		return strconv.FormatBool(*v)
	case *time.Duration:
		return v.String()
	case *uint64:
		return strconv.FormatUint(*v, 2)
	}
	panic(fmt.Sprintf("sim: parameter %s is a %T", f.name, f.value))
}

func (f field) parse(text string) (err error) {
	switch v := f.value.(type) {
	case *int:
		*v, err = strconv.Atoi(text)
	case *bool:
		*v, err = strconv.ParseBool(text)
	case *time.Duration:
		*v, err = time.ParseDuration(text)
	case *uint64:
		*v, err = strconv.ParseUint(text, 2, 64)
	}
	return err
}
