package leasetrace

import (
	"fmt"
	"strings"
)

// Verdict is what Judge has found.
type Verdict struct {
	// Refused is the first event that the rules do not allow, nil if there is none.
	Refused *RefusedError
	// Processes says up to where each was judged.
	Processes []Judged
	// Matched counts messages that arrived and whose sending is in the traces too,
	// Unmatched those that may have been sent where a trace is missing.
	Matched, Unmatched int
	// Reigns counts the terms that somebody was seen to lead.
	Reigns int
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

// Judged says up to where a process was judged.
type Judged struct {
	*Process
	// Events is how many were judged.
	Events int
	// Until says what ended the judgement, if that was not the end of the process. Gap
	// says that something is missing that more may follow: what follows was not judged.
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

// Err returns what the rules do not allow, or else an error if anything that is in
// the traces could not be judged, or if there is nothing to judge.
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

// String is one line for each process, and one for all.
func (v *Verdict) String() string {
	var b strings.Builder
	for _, p := range v.Processes {
		fmt.Fprintf(&b, "%v: judged up to event %d", p.Process, p.Events)
		if p.Until != "" {
			fmt.Fprintf(&b, ", where %s", p.Until)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%d events of %d processes judged, %d promises, %d grants counted, %d views, %d reigns; %d of %d messages were seen to be sent",
		v.Events(), len(v.Processes), v.Kinds[KindPromise], v.Kinds[KindCount],
		v.Kinds[KindView], v.Reigns, v.Matched, v.Matched+v.Unmatched)
	if v.Refused != nil {
		fmt.Fprintf(&b, "\nREFUSED %v", v.Refused)
	}
	return b.String()
}
