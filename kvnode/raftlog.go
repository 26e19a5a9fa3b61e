package kvnode

import (
	"context"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal"
)

// raftLogger passes raft's lines on. Raft says at Info what it does all day, so
// that is Debug here; the node says itself what an operator cares about.
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

// Fatal and Panic are for broken invariants of raft's: nobody may go on.
func (l raftLogger) Fatal(v ...any)                 { l.Panic(v...) }
func (l raftLogger) Fatalf(format string, v ...any) { l.Panicf(format, v...) }
func (l raftLogger) Panic(v ...any)                 { l.print(slog.LevelError, v); panic(fmt.Sprint(v...)) }

func (l raftLogger) Panicf(format string, v ...any) {
	l.printf(slog.LevelError, format, v)
	panic(fmt.Sprintf(format, v...))
}

// startLog is the log as raft starts with it. Its configuration is the store's: the log's is that of its
// snapshot, and some of the changes that led to it may be applied again.
type startLog struct {
	*raftwal.Log
	conf *raftpb.ConfState
}

// InitialState implements raft.Storage.
func (l startLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hard, _, err := l.Log.InitialState()
	return hard, raftpb.EnsureConfState(l.conf), err
}
