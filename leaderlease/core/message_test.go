package core

import (
	"math"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

func TestInstantAdd(t *testing.T) {
	const longest, shortest = time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	for _, tt := range []struct {
		name string
		i    Instant
		d    time.Duration
		want Instant
	}{
		{"forward", 5, 7, 12},
		{"back", 5, -7, -2},
		{"the last sum that fits", Forever - 2, 1, Forever - 1},
		{"a sum that is Forever", Forever - 1, 1, Forever},
		{"one past the end saturates", Forever - 1, 2, Forever},
		{"the longest duration saturates", 1, longest, Forever},
		{"the longest duration from zero is Forever itself", 0, longest, Forever},
		{"Forever has no before", Forever, -1, Forever},
		{"Forever takes no step", Forever, longest, Forever},
		{"the earliest instant", math.MinInt64 + 1, -1, math.MinInt64},
		{"one before the earliest saturates", math.MinInt64 + 1, -2, math.MinInt64},
		{"the most negative duration saturates", -1, shortest, math.MinInt64},
		{"the most negative duration from zero fits", 0, shortest, math.MinInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.i.Add(tt.d); got != tt.want {
				t.Errorf("Instant(%d).Add(%d) = %d, want %d", tt.i, tt.d, got, tt.want)
			}
		})
	}
}

func TestInstantSub(t *testing.T) {
	for _, tt := range []struct {
		name string
		i, o Instant
		want time.Duration
	}{
		{"later", 12, 5, 7},
		{"earlier", 5, 12, -7},
		{"the same", 5, 5, 0},
		{"the longest that fits", math.MaxInt64, 0, math.MaxInt64},
		{"one more saturates", math.MaxInt64, -1, math.MaxInt64},
		{"from end to end saturates", math.MaxInt64, math.MinInt64, math.MaxInt64},
		{"the most negative that fits", -1, math.MaxInt64, math.MinInt64},
		{"one less saturates", -2, math.MaxInt64, math.MinInt64},
		{"from end to end back saturates", math.MinInt64, math.MaxInt64, math.MinInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.i.Sub(tt.o); got != tt.want {
				t.Errorf("Instant(%d).Sub(%d) = %d, want %d", tt.i, tt.o, got, tt.want)
			}
		})
	}
}

func TestInstantValid(t *testing.T) {
	for _, tt := range []struct {
		name string
		i    Instant
		want bool
	}{
		{"the first reading", 1, true},
		{"zero is a clock that could not be read", 0, false},
		{"negative is none either", -1, false},
		{"the last reading", maxReading - 1, true},
		{"a reading to which no second one can be added", maxReading, false},
		{"Forever is no reading", Forever, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.i.Valid(); got != tt.want {
				t.Errorf("Instant(%d).Valid() = %t, want %t", tt.i, got, tt.want)
			}
		})
	}
}

// A request for votes waits for the write that makes its term durable, and is stray without one. The array of
// Responses has room behind its end, which raft may use.
func TestDelayVotes(t *testing.T) {
	const term = 5
	stray := []any{1, 1, 1, raftpb.MsgAppResp, raftpb.MsgVote}
	waits := []any{1, 0, 2, raftpb.MsgVote, raftpb.MsgUnreachable}
	for written, want := range map[uint64][]any{0: stray, term - 1: stray, term: waits, term + 1: waits} {
		room := []*raftpb.Message{{Type: raftpb.MsgAppResp.Enum()}, nil}
		write := &raftpb.Message{Type: raftpb.MsgStorageAppend.Enum(), Term: new(written), Responses: room[:1]}
		vote := &raftpb.Message{Type: raftpb.MsgVote.Enum(), Term: new(uint64(term))}
		msgs := []*raftpb.Message{vote, write}
		kept, stray := DelayVotes(msgs)
		late := write.GetResponses()
		got := []any{len(kept), len(stray), len(late), late[len(late)-1].GetType(), vote.GetType()}
		if !slices.Equal(got, want) || msgs[0] != vote || room[1] != nil {
			t.Errorf("term %d is written: kept, stray, responses and types %v, want %v, with msgs and room as they were", written, got, want)
		}
	}
	vote := &raftpb.Message{Type: raftpb.MsgVote.Enum(), Term: new(uint64(term))}
	if kept, stray := DelayVotes([]*raftpb.Message{vote}); len(kept) != 0 || len(stray) != 1 {
		t.Errorf("without a write: kept %v, stray %v, want the request stray", kept, stray)
	}
}
