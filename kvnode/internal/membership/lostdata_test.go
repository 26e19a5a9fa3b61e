package membership

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// isStale returns whether d refuses a process of the member 2 whose log ends there.
func isStale(t *testing.T, d *RollbackDetector, end transport.DiskState) (*transport.Refusal, bool) {
	t.Helper()
	err := d.Check(&transport.Hello{From: 2, Log: end})
	refusal, refused := errors.AsType[*transport.Refusal](err)
	if err != nil && (!refused || refusal.Reason != transport.ReasonLostData || !strings.Contains(refusal.Text, "gone back in time")) {
		t.Errorf("Check() = %v, want a refusal as wiped", err)
	}
	return refusal, refused
}

func observe(d *RollbackDetector, typ raftpb.MessageType, term, index, commit uint64, reject bool) {
	d.Observe(&raftpb.Message{Type: typ.Enum(), From: new(uint64(2)), Term: new(term), Index: new(index), Commit: new(commit), Reject: new(reject)})
}

// A leader of term 5 knows that the member has acknowledged index 20 to it.
func TestStaleDirectoriesAreRefused(t *testing.T) {
	for _, test := range []struct {
		name  string
		end   transport.DiskState
		stale bool
	}{
		{"all that it acknowledged", transport.DiskState{Boot: "1", Term: 5, Last: 20}, false},
		{"one entry less", transport.DiskState{Boot: "1", Term: 5, Last: 19}, true},
		{"a later leader has truncated its log", transport.DiskState{Boot: "1", Term: 6, Last: 19}, false},
		{"the term before", transport.DiskState{Boot: "1", Term: 4, Last: 20}, true},
		{"a former version", transport.DiskState{Last: 19}, false},
		{"a process that was accepted before", transport.DiskState{Boot: "0", Term: 1, Last: 1}, false},
	} {
		d := NewRollbackDetector()
		if _, stale := isStale(t, d, transport.DiskState{Boot: "0", Term: 1, Last: 1}); stale {
			t.Fatal("the first process is refused")
		}
		observe(d, raftpb.MsgAppResp, 5, 20, 0, false)
		for range 2 { // a refused process is refused again
			if refusal, stale := isStale(t, d, test.end); stale != test.stale || stale && (refusal.Term != 5 || refusal.Index < 19) {
				t.Errorf("%s: Check() = %+v, want a refusal: %v", test.name, refusal, test.stale)
			}
		}
	}
}

// What the hello of an accepted process says is recorded, too.
func TestAHelloIsRecorded(t *testing.T) {
	d := NewRollbackDetector()
	for _, test := range []struct {
		name  string
		end   transport.DiskState
		stale bool
	}{
		{"the first process", transport.DiskState{Boot: "1", Term: 8, Commit: 20, Last: 25}, false},
		{"less than it knew as committed", transport.DiskState{Boot: "2", Term: 8, Last: 19}, true},
		{"an earlier term", transport.DiskState{Boot: "3", Term: 7, Last: 20}, true},
		{"entries that were not committed are missing", transport.DiskState{Boot: "4", Term: 8, Last: 20}, false},
	} {
		if _, stale := isStale(t, d, test.end); stale != test.stale {
			t.Errorf("%s: refused: %v, want %v", test.name, stale, test.stale)
		}
	}
}

// Answers to vote requests and to entries are recorded, and nothing else.
func TestAnswersAreRecorded(t *testing.T) {
	d := NewRollbackDetector()
	observe(d, raftpb.MsgVoteResp, 9, 90, 9, false)
	if len(d.mu.records) > 0 {
		t.Error("the answer of a member that is not connected is recorded")
	}
	d.mu.records[2] = &diskRecord{}
	for _, test := range []struct {
		name                string
		typ                 raftpb.MessageType
		term, index, commit uint64
		reject              bool
		want                diskRecord
	}{
		{"a heartbeat answer", raftpb.MsgHeartbeatResp, 9, 90, 9, false, diskRecord{}},
		{"a pre-vote", raftpb.MsgPreVoteResp, 9, 0, 3, false, diskRecord{index: 3}},
		{"a refused vote", raftpb.MsgVoteResp, 9, 0, 4, true, diskRecord{index: 4}},
		{"a vote", raftpb.MsgVoteResp, 9, 0, 2, false, diskRecord{term: 9, index: 4}},
		{"a late vote", raftpb.MsgVoteResp, 8, 0, 2, false, diskRecord{term: 9, index: 4}},
		{"rejected entries", raftpb.MsgAppResp, 12, 90, 9, true, diskRecord{term: 9, index: 4}},
		{"entries", raftpb.MsgAppResp, 10, 70, 7, false, diskRecord{term: 10, index: 4, ackedTerm: 10, acked: 70}},
		{"a late answer", raftpb.MsgAppResp, 10, 60, 6, false, diskRecord{term: 10, index: 4, ackedTerm: 10, acked: 70}},
		{"fewer entries of a later term", raftpb.MsgAppResp, 11, 50, 5, false, diskRecord{term: 11, index: 4, ackedTerm: 11, acked: 50}},
		{"an answer to a former leader", raftpb.MsgAppResp, 10, 90, 9, false, diskRecord{term: 11, index: 4, ackedTerm: 11, acked: 50}},
	} {
		observe(d, test.typ, test.term, test.index, test.commit, test.reject)
		if got := d.mu.records[2]; got.term != test.want.term || got.index != test.want.index || got.ackedTerm != test.want.ackedTerm || got.acked != test.want.acked {
			t.Errorf("after %s the record is %+v, want %+v", test.name, got, test.want)
		}
	}
}

// However many processes with a copy of its directory come and go, a member that connects again after each of them
// stays accepted, and the record stays small.
func TestAcceptedProcessesAreBounded(t *testing.T) {
	d := NewRollbackDetector()
	_, _ = isStale(t, d, transport.DiskState{Boot: "right", Term: 1, Last: 1})
	observe(d, raftpb.MsgAppResp, 5, 20, 0, false)
	for i := range 3 * maxAccepted {
		if _, stale := isStale(t, d, transport.DiskState{Boot: fmt.Sprint("copy", i), Term: 5, Last: 20}); stale {
			t.Fatal("a copy that lacks nothing is refused")
		}
		if _, stale := isStale(t, d, transport.DiskState{Boot: "right", Term: 1, Last: 1}); stale {
			t.Fatalf("the member is refused after %d copies", i+1)
		}
	}
	if got := len(d.mu.records[2].accepted); got != maxAccepted {
		t.Errorf("%d processes are remembered, want %d", got, maxAccepted)
	}
}

// fakeLog is a log whose first entries are compacted.
type fakeLog struct {
	first   uint64
	entries []*raftpb.Entry
	err     error // of Entries
}

func (l *fakeLog) LastIndex() (uint64, error) { return l.first + uint64(len(l.entries)) - 1, nil }

// Entries returns one entry at a time.
func (l *fakeLog) Entries(lo, _, _ uint64) ([]*raftpb.Entry, error) {
	if lo < l.first {
		return nil, raft.ErrCompacted
	}
	return l.entries[lo-l.first:][:1], l.err
}

func registration(t *testing.T, id uint64, instance string) *raftpb.Entry {
	t.Helper()
	data, err := (&store.Command{Register: &store.Member{ID: id, Instance: instance}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return &raftpb.Entry{Data: data}
}

func TestInstances(t *testing.T) {
	failed := errors.New("a disk error")
	entries := []*raftpb.Entry{
		registration(t, 4, "applied"), {Type: raftpb.EntryConfChange.Enum()}, registration(t, 5, "another"), registration(t, 4, "first"), registration(t, 4, "second"),
	}
	for _, test := range []struct {
		name     string
		id       uint64
		applied  uint64
		log      *fakeLog
		hello    string
		instance string
		err      error
	}{
		{"the registry has it", 2, 10, &fakeLog{first: 11, err: failed}, "", "i2", nil},
		{"the first registration behind the applied index counts", 4, 10, &fakeLog{first: 10, entries: entries}, "", "first", nil},
		{"no registration", 9, 10, &fakeLog{first: 10, entries: entries}, "", "", nil},
		{"the log cannot be read", 4, 10, &fakeLog{first: 10, entries: entries, err: failed}, "", "", failed},
		{"a snapshot is not restored yet, and the member is connected", 4, 2, &fakeLog{first: 10, entries: entries}, "connected", "connected", nil},
		{"a snapshot is not restored yet", 4, 2, &fakeLog{first: 10, entries: entries}, "", "", raft.ErrCompacted},
	} {
		s, links := three(), newLinks()
		s.applied = test.applied
		links.addrs[test.id], links.hellos[test.id] = nil, transport.Hello{Instance: test.hello}
		got, err := NewInstances(InstancesConfig{Store: s, Log: test.log, Links: links}).Of(test.id)
		if got != test.instance || !errors.Is(err, test.err) || test.err == nil && err != nil {
			t.Errorf("%s: Of() = %q, %v, want %q, %v", test.name, got, err, test.instance, test.err)
		}
	}
}
