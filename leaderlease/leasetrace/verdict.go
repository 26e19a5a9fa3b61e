package leasetrace

import (
	"fmt"
	"strings"
)

// Verdict is the result of Judge.
type Verdict struct {
	// Refused is the first event that the rules do not allow, nil if there is none.
	Refused *RefusedError
	// Processes has one entry for each process.
	Processes []Judged
	// Matched counts the received messages with a matching send in the traces. Unmatched
	// counts those that may have been sent where a trace is incomplete.
	Matched, Unmatched int
	// Terms counts the terms that have a leader in the traces.
	Terms int
	// Kinds counts the events that were judged.
	Kinds [NumKinds]int
}

// RefusedError is an event that the rules do not allow.
type RefusedError struct {
	Process *Process
	Event   Event
	Why     error
}

// Error implements error.
func (r *RefusedError) Error() string {
	e := &r.Event
	return fmt.Sprintf("%v, event %d, %v at %d: %v", r.Process, e.Seq, e.Kind, e.At, r.Why)
}

// Unwrap returns why.
func (r *RefusedError) Unwrap() error { return r.Why }

// Judged says how many events of a process were checked.
type Judged struct {
	*Process
	Events int
	// Until says why the check stopped, if that was before the end of the process. Gap is
	// set if events are missing there, so that later events were not checked.
	Until string
	Gap   bool
}

// Events returns how many events were judged.
func (v *Verdict) Events() (n int) {
	for _, k := range v.Kinds {
		n += k
	}
	return n
}

// Err returns Refused. Without one, it returns an error if events could not be checked,
// or if there are none.
func (v *Verdict) Err() error {
	if v.Refused != nil {
		return v.Refused
	}
	for _, p := range v.Processes {
		if p.Gap {
			return fmt.Errorf("%v is judged up to event %d: %s", p.Process, p.Events, p.Until)
		}
	}
	if v.Events() == 0 {
		return fmt.Errorf("there is nothing to judge")
	}
	return nil
}

// String returns one line for each process and a summary line.
func (v *Verdict) String() string {
	var b strings.Builder
	for _, p := range v.Processes {
		fmt.Fprintf(&b, "%v: judged up to event %d", p.Process, p.Events)
		if p.Until != "" {
			fmt.Fprintf(&b, ", where %s", p.Until)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d events of %d processes judged, %d promises, %d grants counted, %d views, %d terms with a leader; %d of %d messages have a matching send",
		v.Events(), len(v.Processes), v.Kinds[KindPromise], v.Kinds[KindCount],
		v.Kinds[KindView], v.Terms, v.Matched, v.Matched+v.Unmatched)
	if v.Refused != nil {
		fmt.Fprintf(&b, "\nREFUSED %v", v.Refused)
	}
	return b.String()
}
