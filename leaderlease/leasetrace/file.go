package leasetrace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
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

// maxLine is more bytes than any line has.
const maxLine = 1 << 16

var errNotTrace = errors.New("this is not a trace: its first line must begin a process")

// ReadFiles reads the traces of a group, one or more files for each member, each with the
// older file that Record may have renamed. A file that is named twice is read once.
func ReadFiles(names ...string) (all []Process, err error) {
	for i, name := range names {
		if whole, older := strings.CutSuffix(name, olderSuffix); slices.Contains(names[:i], name) || older && slices.Contains(names, whole) {
			continue // read already, or read with its newer half
		}
		var one []Process
		for _, part := range []string{name + olderSuffix, name} {
			f, err := os.Open(part)
			if errors.Is(err, fs.ErrNotExist) && part != name {
				continue
			}
			if err != nil {
				return nil, err
			}
			one, err = read(f, one)
			if err = errors.Join(err, f.Close()); err != nil {
				return nil, fmt.Errorf("%s: %w", part, err)
			}
		}
		all = append(all, one...)
	}
	return all, nil
}

// Read reads one file of traces.
func Read(r io.Reader) ([]Process, error) { return read(r, nil) }

// read appends to the processes of earlier files.
func read(r io.Reader, all []Process) ([]Process, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	f := file{all: all}
	for n := 1; lines.Scan(); n++ {
		text := lines.Bytes()
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if err := f.take(text, n); err != nil {
			return nil, err
		}
	}
	switch err := lines.Err(); {
	case len(f.all) == 0 && err != nil:
		return nil, err
	case f.torn:
		return nil, errNotTrace
	case err != nil:
		f.all[len(f.all)-1].cut(err.Error())
	}
	return f.all, nil
}

// file is a file that is being read.
type file struct {
	all   []Process
	begun bool // its first process has begun
	torn  bool // its first line cannot be read, and none follows yet
}

// take adds a line that is not empty. The first line may be torn; then the next line must
// begin a process.
func (f *file) take(text []byte, number int) error {
	var l line
	err := json.Unmarshal(text, &l)
	switch {
	case len(f.all) == 0 && err != nil && !f.torn:
		f.torn = true
		return nil
	case len(f.all) == 0 && err != nil, !f.begun && err == nil && l.Trace == 0:
		return errNotTrace
	case err != nil || l.Trace == 0:
		f.all[len(f.all)-1].take(&l, number, err)
	default:
		if f.all, err = begin(f.all, &l, f.torn); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	f.begun, f.torn = true, false
	return nil
}

// begin adds the process that l begins, unless it continues the last process in another
// file. A torn line before l was the first line of another process of the same member.
func begin(all []Process, l *line, torn bool) ([]Process, error) {
	s, err := l.start()
	if err != nil {
		return nil, err
	}
	if torn {
		all = append(all, Process{Start: Start{ID: s.ID}, Cut: "its first line cannot be read"})
	}
	if n := len(all); n > 0 && all[n-1].Start == s && !all[n-1].Ended {
		return all, nil
	}
	return append(all, Process{Start: s}), nil
}

// take adds a line to its process. If the last line cannot be read, the process was killed
// while it wrote that line.
func (p *Process) take(l *line, number int, err error) {
	var e Event
	if err == nil && l.Kind != "" {
		e, err = l.event()
	}
	switch {
	case p.Cut != "":
	case p.torn != "":
		p.cut(p.torn)
	case err != nil:
		p.torn, p.Ended = fmt.Sprintf("line %d cannot be read: %v", number, err), false
	case p.Ended:
		p.cut(fmt.Sprintf("line %d follows the end", number))
	case l.Kind != "":
		p.Events = append(p.Events, e)
	case l.Lost != 0:
		p.cut(fmt.Sprintf("%d events are lost", l.Lost))
	case l.End == p.last():
		p.Ended = true
	default:
		p.cut(fmt.Sprintf("line %d ends it at event %d", number, l.End))
	}
}

func (p *Process) cut(why string) { p.Cut, p.Ended = why, false }
