package kvnode

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
	"github.com/leaderlease/go/raftwal"
)

// openRaft creates the RawNode and its lease. bootstrapEntries is the number of bootstrap entries with which a new log
// begins.
func openRaft(n *Node) (raw *raft.RawNode, bootstrapEntries uint64, err error) {
	ticks, durable := n.cfg.electionTicks(), n.store.Durable()
	rc := &raft.Config{
		ID: n.ID(), ElectionTick: ticks, HeartbeatTick: 1,
		Storage: startLog{n.wal, durable.ConfState}, Applied: durable.Index, AsyncStorageWrites: true,
		// MaxInflightMsgs is etcd's. MaxInflightBytes is below the number of bytes at which raftwal.Appender blocks.
		MaxSizePerMsg: 512 << 10, MaxInflightMsgs: 512, MaxInflightBytes: 8 << 20,
		MaxCommittedSizePerReady: 4 << 20, MaxUncommittedEntriesSize: uint64(n.cfg.maxUncommitted),
		PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
		Logger: raftLogger{n.cfg.Logger.With("component", "raft")},
	}
	duration, margin := n.cfg.Lease()
	lease := leaderlease.Config{
		TickInterval: n.cfg.TickInterval, Duration: duration, MaxClockSkew: margin,
		MaxDriftPPM: n.cfg.MaxDriftPPM, Promises: n.wal, Clock: n.cfg.Clock, Disabled: n.cfg.DisableLease,
		MaxPromise: n.cfg.maxPromise(),
		Send:       func(msgs []*raftpb.Message) { n.links.Send(msgs) }, NotifyRead: func() { n.reads.forward() }, Logger: n.cfg.Logger,
	}
	if n.cfg.LeaseTrace != "" || n.cfg.KeepTrace {
		n.trace = leasetrace.New(leasetrace.Room)
		lease.Tracer = n.trace
	}
	raw, n.lease, err = leaderlease.NewRawNode(rc, lease)
	if err == nil && n.cfg.LeaseTrace != "" {
		n.recorder, err = leasetrace.Record(n.cfg.LeaseTrace, n.trace, func(err error) { n.log.Error("the trace of the lease has ended", "error", err) })
	}
	if err != nil {
		return nil, 0, err
	}
	last, err := n.wal.LastIndex()
	hard, _, hardErr := n.wal.InitialState()
	if err := errors.Join(err, hardErr); err != nil {
		return nil, 0, err
	}
	n.last.Store(last)
	n.leadership.term.Store(hard.GetTerm()) // the first Ready has the hard state only if it changes
	n.raftApplied.Store(rc.Applied)
	n.lease.Applied(n.store.Applied())
	n.atStart = transport.DiskState{Boot: rand.Text(), Term: hard.GetTerm(), Commit: hard.GetCommit(), Last: last}
	if n.fresh && !n.id.Joined {
		peers, err := initialPeers(&n.id)
		if err != nil {
			return nil, 0, err
		}
		err = raw.Bootstrap(peers)
		return raw, uint64(len(peers)), err
	}
	return raw, 0, nil
}

// initialPeers returns the initial cluster, with which each member begins its log.
func initialPeers(id *memberdir.Identity) (peers []raft.Peer, err error) {
	for _, m := range id.InitialMembers() {
		data, err := json.Marshal(membership.ChangeContext{Member: m})
		if err != nil {
			return nil, err
		}
		peers = append(peers, raft.Peer{ID: m.ID, Context: data})
	}
	return peers, nil
}

// startLog is the log with the configuration of the store. Raft starts at the store's index and applies the entries
// after it, with their configuration changes. The log itself knows only the configuration of its snapshot, which may
// be of another index.
type startLog struct {
	*raftwal.Log
	conf *raftpb.ConfState
}

// InitialState implements raft.Storage.
func (l startLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hard, _, err := l.Log.InitialState()
	return hard, raftpb.EnsureConfState(l.conf), err
}

// raftLogger passes raft's log lines on. Those of level Info become Debug, since the node itself logs what
// matters to an operator.
type raftLogger struct{ to *slog.Logger }

var _ raft.Logger = raftLogger{}

func (l raftLogger) log(level slog.Level, f func() string) {
	if l.to.Enabled(context.Background(), level) {
		l.to.Log(context.Background(), level, f())
	}
}

func (l raftLogger) print(level slog.Level, v []any) {
	l.log(level, func() string { return fmt.Sprint(v...) })
}

func (l raftLogger) printf(level slog.Level, format string, v []any) {
	l.log(level, func() string { return fmt.Sprintf(format, v...) })
}

func (l raftLogger) Debug(v ...any)                   { l.print(slog.LevelDebug, v) }
func (l raftLogger) Debugf(format string, v ...any)   { l.printf(slog.LevelDebug, format, v) }
func (l raftLogger) Info(v ...any)                    { l.print(slog.LevelDebug, v) }
func (l raftLogger) Infof(format string, v ...any)    { l.printf(slog.LevelDebug, format, v) }
func (l raftLogger) Warning(v ...any)                 { l.print(slog.LevelWarn, v) }
func (l raftLogger) Warningf(format string, v ...any) { l.printf(slog.LevelWarn, format, v) }
func (l raftLogger) Error(v ...any)                   { l.print(slog.LevelError, v) }
func (l raftLogger) Errorf(format string, v ...any)   { l.printf(slog.LevelError, format, v) }

// Fatal and Panic report a broken invariant of raft, so both panic.
func (l raftLogger) Fatal(v ...any)                 { l.Panic(v...) }
func (l raftLogger) Fatalf(format string, v ...any) { l.Panicf(format, v...) }
func (l raftLogger) Panic(v ...any)                 { l.print(slog.LevelError, v); panic(fmt.Sprint(v...)) }

func (l raftLogger) Panicf(format string, v ...any) {
	l.printf(slog.LevelError, format, v)
	panic(fmt.Sprintf(format, v...))
}
