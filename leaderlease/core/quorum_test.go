package core

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"
)

// Which answers make a quorum. The leader is node 1; each answer reaches until
// one second after its number, in milliseconds.
func TestQuorum(t *testing.T) {
	for _, tt := range []struct {
		name    string
		cfg     quorum.JointConfig
		answers map[uint64]Instant // sent
		want    Instant            // end; Forever for a lease without one
	}{
		{"no configuration", voters(), nil, 0},
		{"no incoming half", joint(nil, []uint64{1}), nil, 0},
		{"a sole voter needs nobody", voters(1), nil, Forever},
		{"a sole voter in both halves", joint([]uint64{1}, []uint64{1}), nil, Forever},
		{"a sole voter that others shall follow", joint([]uint64{1, 2, 3}, []uint64{1}), nil, 0},
		{"two voters: nobody has answered", voters(1, 2), nil, 0},
		{"two voters: the other has", voters(1, 2), map[uint64]Instant{2: 100}, 1100},
		{"three voters: one has", voters(1, 2, 3), map[uint64]Instant{3: 100}, 1100},
		{"three voters: the faster counts", voters(1, 2, 3), map[uint64]Instant{2: 200, 3: 100}, 1200},
		{"four voters: one has", voters(1, 2, 3, 4), map[uint64]Instant{3: 100}, 0},
		{"four voters: the second counts", voters(1, 2, 3, 4), map[uint64]Instant{3: 100, 4: 300}, 1100},
		{"five voters: one has", voters(1, 2, 3, 4, 5), map[uint64]Instant{5: 100}, 0},
		{"five voters: the second counts", voters(1, 2, 3, 4, 5), map[uint64]Instant{2: 50, 3: 200, 5: 100}, 1100},
		{"six voters: two have", voters(1, 2, 3, 4, 5, 6), map[uint64]Instant{2: 100, 3: 100}, 0},
		{"six voters: the third counts", voters(1, 2, 3, 4, 5, 6), map[uint64]Instant{2: 100, 3: 200, 4: 300}, 1100},
		{"seven voters: the third counts", voters(1, 2, 3, 4, 5, 6, 7), map[uint64]Instant{2: 100, 3: 200, 4: 300, 7: 400}, 1200},
		{"eight voters: the fourth counts", voters(1, 2, 3, 4, 5, 6, 7, 8), map[uint64]Instant{2: 100, 3: 200, 4: 300, 8: 400}, 1100},
		{"joint: only the incoming half has", joint([]uint64{1, 2, 3}, []uint64{1, 4, 5}), map[uint64]Instant{2: 100, 3: 100}, 0},
		{"joint: only the outgoing half has", joint([]uint64{1, 2, 3}, []uint64{1, 4, 5}), map[uint64]Instant{4: 100, 5: 100}, 0},
		{"joint: the slower half counts, outgoing", joint([]uint64{1, 2, 3}, []uint64{1, 4, 5}), map[uint64]Instant{2: 300, 4: 100}, 1100},
		{"joint: the slower half counts, incoming", joint([]uint64{1, 2, 3}, []uint64{1, 4, 5}), map[uint64]Instant{2: 100, 4: 300}, 1100},
		{"joint: one voter answers for both halves", joint([]uint64{1, 2, 3}, []uint64{1, 2, 5}), map[uint64]Instant{2: 100}, 1100},
		{"a leader on its way out counts in its half only", joint([]uint64{2, 3, 4}, []uint64{1, 5}), map[uint64]Instant{2: 100, 5: 100}, 0},
		{"a leader on its way out, with both quorums", joint([]uint64{2, 3, 4}, []uint64{1, 5}), map[uint64]Instant{2: 100, 3: 200, 5: 300}, 1100},
		{"a leader on its way in", joint([]uint64{1}, []uint64{2, 3}), map[uint64]Instant{2: 100, 3: 200}, 1100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := leading(1, tt.cfg)
			for id, sent := range tt.answers {
				grants(l, sent*ms, 500*ms, id)
			}
			want := tt.want * ms
			if tt.want == Forever {
				want = Forever
			}
			v := l.View(500 * ms)
			if v.End != want {
				t.Errorf("View().End = %d, want %d", v.End, want)
			}
			if valid := v.Check(500*ms) == Valid; valid != (tt.want != 0) {
				t.Errorf("View().Check() = %v with end %d", v.Check(500*ms), v.End)
			}
		})
	}
}

// A leader that is demoted or removed counts for nothing, its lease is refused
// whatever the others have answered, and a learner's answer is not counted.
func TestDemotedLeader(t *testing.T) {
	l := leading(sec, voters(1, 2, 3))
	grants(l, 1500*ms, 2*sec, 2, 3)
	l.SetVoters(Voters(&raftpb.ConfState{Voters: []uint64{2, 3}, Learners: []uint64{1, 4}}))
	if s := new(l.View(2 * sec)).Check(2 * sec); s != NotVoter || l.IsVoter() {
		t.Errorf("Check() of a demoted leader = %v, want not_voter", s)
	}
	if l.Count(4, 5, Grant{Sent: 1500 * ms, Duration: time.Second}, 2*sec); len(l.Peers(2*sec)) != 2 {
		t.Errorf("Peers() = %+v, want no learner", l.Peers(2*sec))
	}

	// Demoted by a joint change, it votes until that is left.
	l.SetVoters(Voters(&raftpb.ConfState{Voters: []uint64{2, 3}, VotersOutgoing: []uint64{1, 2, 3}, LearnersNext: []uint64{1}}))
	if s := new(l.View(2 * sec)).Check(2 * sec); s != Valid || !l.IsVoter() {
		t.Errorf("Check() of a leader that is about to be demoted = %v, want valid", s)
	}
}

// The lease is recomputed from the grants at hand, and only from those of
// voters that stayed (L5).
func TestSetVotersRecomputes(t *testing.T) {
	for _, tt := range []struct {
		name string
		then []quorum.JointConfig
		want Instant
	}{
		{"the same voters", []quorum.JointConfig{voters(1, 2, 3)}, 2500 * ms},
		{"a smaller quorum", []quorum.JointConfig{voters(1, 2)}, 2400 * ms},
		{"down to a sole voter", []quorum.JointConfig{voters(1)}, Forever},
		{"a larger quorum that has not answered", []quorum.JointConfig{voters(1, 3, 4, 5)}, 0},
		{"a larger quorum that has", []quorum.JointConfig{voters(1, 2, 3, 4, 5)}, 2400 * ms},
		{"joint with others that have not", []quorum.JointConfig{joint([]uint64{1, 4, 5}, []uint64{1, 2, 3})}, 0},
		{"a voter that comes back has to promise anew", []quorum.JointConfig{voters(1, 2), voters(1, 2, 3)}, 2400 * ms},
		{"all come back", []quorum.JointConfig{voters(1), voters(1, 2, 3)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := leading(sec, voters(1, 2, 3))
			grants(l, 1400*ms, 2*sec, 2)
			grants(l, 1500*ms, 2*sec, 3)
			for _, cfg := range tt.then {
				l.SetVoters(cfg)
			}
			if got := l.View(2 * sec).End; got != tt.want {
				t.Errorf("View().End = %d, want %d", got, tt.want)
			}
		})
	}
	l := NewLease(testParams)
	l.SetVoters(voters(1))
	if got := l.View(sec).End; got != 0 {
		t.Errorf("View().End = %d for a sole voter that does not lead, want 0", got)
	}
}

// An invalidation costs a sole voter nothing it does not have, a transfer
// keeps it from serving.
func TestSoleVoterHandsOver(t *testing.T) {
	l := leading(sec, voters(1))
	l.Release(2 * sec)
	if s := new(l.View(2 * sec)).Check(2 * sec); s != Transferring {
		t.Errorf("Check() of a sole voter in a transfer = %v, want transferring", s)
	}
}

func TestAloneQuorum(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  quorum.JointConfig
		id   uint64
		want bool
	}{
		{"nobody votes", voters(), 1, false},
		{"the sole voter", voters(1), 1, true},
		{"another is the sole voter", voters(2), 1, false},
		{"one of two", voters(1, 2), 1, false},
		{"one of three", voters(1, 2, 3), 1, false},
		{"the sole voter of both halves", joint([]uint64{1}, []uint64{1}), 1, true},
		{"others leave", joint([]uint64{1}, []uint64{1, 2, 3}), 1, false},
		{"others come", joint([]uint64{1, 2}, []uint64{1}), 1, false},
		{"takes over from another", joint([]uint64{1}, []uint64{2}), 1, false},
		{"transfers to another", joint([]uint64{2}, []uint64{1}), 1, false},
		{"votes in the outgoing half alone", joint(nil, []uint64{1}), 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := AloneQuorum(tt.cfg, tt.id); got != tt.want {
				t.Errorf("AloneQuorum(%v, %d) = %t, want %t", tt.cfg, tt.id, got, tt.want)
			}
			want := bruteQuorum(tt.cfg, map[uint64]bool{tt.id: true})
			if tt.want != want {
				t.Errorf("the table says %t, counting says %t", tt.want, want)
			}
		})
	}
}

// Voters are the IDs that ConfState lists as voters. Present and future learners are none.
func TestVoters(t *testing.T) {
	got := Voters(&raftpb.ConfState{
		Voters: []uint64{1, 2}, VotersOutgoing: []uint64{2, 3}, Learners: []uint64{4}, LearnersNext: []uint64{3}, AutoLeave: new(true),
	})
	if want := "(1 2)&&(2 3)"; got.String() != want {
		t.Errorf("Voters() = %v, want %s", got, want)
	}
	if got := Voters(nil); len(got[0]) != 0 || len(got[1]) != 0 {
		t.Errorf("Voters(nil) = %v, want nobody", got)
	}
}

// quorumEndIsNewestOfAnyQuorum compares the lease with the definition over all
// sets of voters, through changes of configuration in between.
func quorumEndIsNewestOfAnyQuorum(t *rapid.T) {
	half := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 8), 0, 7, rapid.ID)
	l := leading(1, voters())
	promised := map[uint64]Instant{}
	for range rapid.IntRange(1, 4).Draw(t, "configurations") {
		cfg := joint(half.Draw(t, "incoming"), half.Draw(t, "outgoing"))
		l.SetVoters(cfg)
		members := map[uint64]bool{}
		for _, id := range sortedIDs(cfg) {
			members[id] = true
		}
		for id := range uint64(9) {
			if !members[id] {
				delete(promised, id)
			}
		}
		promised[1] = Forever
		for range rapid.IntRange(0, 10).Draw(t, "answers") {
			id := rapid.Uint64Range(1, 8).Draw(t, "from")
			sent := Instant(rapid.Int64Range(1, 20).Draw(t, "sent"))
			grants(l, sent, 20, id)
			if members[id] {
				promised[id] = max(promised[id], sent.Add(testParams.Duration))
			}
		}
		if got, want := l.View(20).End, bruteEnd(cfg, promised); got != want {
			t.Fatalf("View().End = %d for %v and %v, want %d", got, cfg, promised, want)
		}
		alone := bruteQuorum(cfg, map[uint64]bool{1: true})
		if got := AloneQuorum(cfg, 1); got != alone {
			t.Fatalf("AloneQuorum(%v, 1) = %t, want %t", cfg, got, alone)
		}
	}
}

func TestQuorumEndIsNewestOfAnyQuorum(t *testing.T) { rapid.Check(t, quorumEndIsNewestOfAnyQuorum) }

func FuzzQuorumEndIsNewestOfAnyQuorum(f *testing.F) {
	f.Add(words(f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20))
	f.Fuzz(rapid.MakeFuzz(quorumEndIsNewestOfAnyQuorum))
}

// addChoices adds three random inputs to the corpus, each long enough for rapid's choices.
func addChoices(f *testing.F) {
	for seed := range byte(3) {
		input := make([]byte, 512)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(input) // never fails
		f.Add(input)
	}
}

// words is input for rapid, which takes its choices from it eight bytes each.
func words(tb testing.TB, choices ...uint64) []byte {
	tb.Helper()
	if len(choices) == 0 {
		tb.Fatal(fmt.Errorf("no choices"))
	}
	var data []byte
	for _, c := range choices {
		data = binary.LittleEndian.AppendUint64(data, c)
	}
	return data
}
