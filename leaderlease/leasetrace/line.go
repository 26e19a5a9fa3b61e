package leasetrace

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// Version is the version of the file format (docs/lease-traces.md).
const Version = 1

// line is any line of a trace on disk. The first line of a process has Trace set, an
// event Kind, a gap Lost, and the end of a process End.
type line struct {
	Trace  int    `json:"trace,omitempty"`
	ID     string `json:"id,omitempty"`
	Began  string `json:"began,omitempty"`
	Holds  int64  `json:"hold,omitempty"`
	Skew   int64  `json:"max_clock_skew,omitempty"`
	Most   int64  `json:"max_promise,omitempty"`
	Moving int64  `json:"transfer_timeout,omitempty"`
	Saved  int64  `json:"saved,omitempty"`

	Seq         uint64 `json:"seq,omitempty"`
	At          int64  `json:"at,omitempty"`
	Kind        string `json:"kind,omitempty"`
	Peer        string `json:"peer,omitempty"`
	Term        uint64 `json:"term,omitempty"`
	Instant     int64  `json:"instant,omitempty"`
	Duration    int64  `json:"duration,omitempty"`
	Reading     int64  `json:"reading,omitempty"`
	Number      uint64 `json:"number,omitempty"`
	Incarnation uint64 `json:"incarnation,omitempty"`
	Role        string `json:"role,omitempty"`
	Message     string `json:"message,omitempty"`
	Status      string `json:"status,omitempty"`
	OK          bool   `json:"ok,omitempty"`

	Lost uint64 `json:"lost,omitempty"`
	End  uint64 `json:"end,omitempty"`
}

// AppendStart appends the first line of a process, or of another file of the same process.
// began is for people to read.
func AppendStart(b []byte, s Start, began time.Time) []byte {
	l := line{
		Trace: Version, ID: hex(s.ID), Incarnation: uint64(s.Incarnation), At: int64(s.At), Term: s.Term,
		Duration: int64(s.Duration), Skew: int64(s.MaxClockSkew), Most: int64(s.MaxPromise),
		Moving: int64(s.TransferTimeout), Holds: int64(s.Hold), Saved: int64(s.Saved),
	}
	if !began.IsZero() {
		l.Began = began.UTC().Format(time.RFC3339Nano)
	}
	return l.append(b)
}

// AppendEvent appends the line of an event.
func AppendEvent(b []byte, e *Event) []byte {
	l := line{
		Seq: e.Seq, At: int64(e.At), Kind: e.Kind.String(), Peer: hex(e.Peer), Term: e.Term, Instant: int64(e.Instant),
		Duration: int64(e.Duration), Reading: int64(e.Reading), Number: e.Number, OK: e.OK,
	}
	if e.Kind == KindRaft {
		l.Role = roles[e.Role]
	}
	if e.Message != 0 {
		l.Message = e.Message.String()
	}
	if e.Status != core.None {
		l.Status = e.Status.String()
	}
	return l.append(b)
}

// AppendLost appends the mark of a gap of n events.
func AppendLost(b []byte, n uint64) []byte { return (&line{Lost: n}).append(b) }

// AppendEnd appends the last line of a process with n events.
func AppendEnd(b []byte, n uint64) []byte { return (&line{End: n}).append(b) }

func (l *line) append(b []byte) []byte {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings and numbers
	}
	return append(append(b, text...), '\n')
}

// hex formats an ID as logs do: JSON readers may round a 64-bit number.
func hex(id uint64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatUint(id, 16)
}

func unhex(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	return strconv.ParseUint(s, 16, 64)
}

func (l *line) start() (s Start, err error) {
	if l.Trace != Version {
		return s, fmt.Errorf("the trace is of version %d, and this program reads version %d", l.Trace, Version)
	}
	id, err := unhex(l.ID)
	if err == nil && id == 0 {
		err = fmt.Errorf("the trace has no member ID")
	}
	return Start{
		ID: id, Incarnation: core.Incarnation(l.Incarnation), At: core.Instant(l.At), Term: l.Term,
		Duration: time.Duration(l.Duration), MaxClockSkew: time.Duration(l.Skew), MaxPromise: time.Duration(l.Most),
		TransferTimeout: time.Duration(l.Moving), Hold: time.Duration(l.Holds), Saved: time.Duration(l.Saved),
	}, err
}

func (l *line) event() (e Event, err error) {
	e = Event{
		Seq: l.Seq, At: core.Instant(l.At), Term: l.Term, Instant: core.Instant(l.Instant),
		Duration: time.Duration(l.Duration), Reading: core.Instant(l.Reading), Number: l.Number, OK: l.OK,
	}
	if e.Peer, err = unhex(l.Peer); err != nil {
		return e, err
	}
	if e.Kind, err = named[Kind](l.Kind, NumKinds); err != nil {
		return e, err
	}
	if l.Status != "" {
		if e.Status, err = named[core.Status](l.Status, core.NumStatus); err != nil {
			return e, err
		}
	}
	if l.Role != "" {
		if e.Role, err = role(l.Role); err != nil {
			return e, err
		}
	}
	if l.Message != "" {
		n, ok := raftpb.MessageType_value[l.Message]
		if !ok {
			return e, fmt.Errorf("message %q is unknown", l.Message)
		}
		e.Message = raftpb.MessageType(n)
	}
	return e, nil
}

func named[T interface {
	~uint8
	String() string
}](name string, values int,
) (T, error) {
	for i := range values {
		if T(i).String() == name {
			return T(i), nil
		}
	}
	return 0, fmt.Errorf("%q is unknown", name)
}

var roles = [...]string{
	raft.StateFollower: "follower", raft.StateCandidate: "candidate", raft.StateLeader: "leader", raft.StatePreCandidate: "pre_candidate",
}

func role(name string) (raft.StateType, error) {
	for i, r := range roles {
		if r == name {
			return raft.StateType(i), nil
		}
	}
	return 0, fmt.Errorf("role %q is unknown", name)
}
