package rules

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/core"
	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// wantProbes checks each heartbeat that id sends, and counts them.
func (s *story) wantProbes(id uint64) *int {
	n := new(int)
	s.Net.OnSend = func(m *raftpb.Message) {
		if m.GetType() != raftpb.MsgHeartbeat || m.GetFrom() != id {
			return
		}
		*n++
		now := s.Node(id).Clock.Now()
		f, ok := leasetest.FieldOf(m)
		if !ok || f.Kind != "probe" || core.Instant(f.Values[0]) != now || time.Duration(f.Values[1]) != duration {
			s.t.Errorf("%v: heartbeat to %d carries %v, want probe sent=%v for=%v",
				s.Now(), m.GetTo(), f, time.Duration(now), duration)
		}
	}
	return n
}

// Every heartbeat of a leader carries the instant at which it left.
func TestL1EveryHeartbeatCarriesAProbe(t *testing.T) {
	s := begin(t, leasetest.Options{})
	n := s.wantProbes(1)
	s.lead(1)
	s.Run(time.Second)
	if *n < 20 {
		t.Errorf("%d heartbeats in a second, want at least 20", *n)
	}
}

// The heartbeats of a ReadIndex round carry probes, too: the read that found no
// lease brings it back, without waiting for the next tick.
func TestL1ReadIndexRoundRenewsTheLease(t *testing.T) {
	s := begin(t, leasetest.Options{})
	s.lead(1)
	s.Run(50 * ms) // between two ticks
	n := s.wantProbes(1)
	hook.Invalidate(s.Node(1).Lease())
	s.Run(ms)
	s.wantStatus(1, core.Expired)
	a := s.read(1, 7)
	s.Run(3 * ms)
	if *n != 2 {
		t.Errorf("%d heartbeats in the round, want 2", *n)
	}
	s.wantStatus(1, core.Valid)
	if !a.served() || a.path == leaderlease.PathLease {
		t.Errorf("Read() = %+v, want served by the round", *a)
	}
}

// Probes and grants ride on what raft sends anyway: the same run with and
// without the library sends the same messages and writes as often to the disk.
func TestL1NoExtraMessages(t *testing.T) {
	count := func(kind leasetest.Kind) (messages, saves int) {
		s := begin(t, leasetest.Options{
			Node: func(uint64) leasetest.NodeOptions { return leasetest.NodeOptions{Kind: kind} },
			NewDisk: func(_ uint64, conf *raftpb.ConfState) leasetest.Disk {
				return countingDisk{leasetest.NewMemoryDisk(conf), &saves}
			},
		})
		s.Net.OnSend = func(*raftpb.Message) { messages++ }
		s.Node(1).Campaign()
		for range 10 {
			s.Run(time.Second)
			s.write(1, 7)
		}
		return messages, saves
	}
	messages, saves := count(leasetest.Library)
	wantMessages, wantSaves := count(leasetest.Plain)
	if messages != wantMessages || saves != wantSaves {
		t.Errorf("messages, disk writes with the library = %d, %d, want %d, %d", messages, saves, wantMessages, wantSaves)
	}
}

// countingDisk counts the writes that have something to write.
type countingDisk struct {
	leasetest.Disk
	saves *int
}

func (d countingDisk) Save(entries []*raftpb.Entry, hard *raftpb.HardState, snap *raftpb.Snapshot) error {
	if len(entries) > 0 || !raft.IsEmptyHardState(hard) || !raft.IsEmptySnap(snap) {
		*d.saves++
	}
	return d.Disk.Save(entries, hard, snap)
}
