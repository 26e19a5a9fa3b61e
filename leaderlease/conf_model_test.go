package leaderlease

import (
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/core"
)

// confModel is an embedder with an apply thread that is late, and which configuration
// raft is in once that has caught up: each index leads to one of its own.
type confModel struct {
	*puppet
	r *rand.Rand
	// has is ConfIndex, until a snapshot takes the state machine elsewhere; late and
	// told are changes to apply and applied, newest the one that counts in the end.
	has        uint64
	late, told []uint64
	newest     uint64
}

// leadsTo is the configuration of index; that of 0 is the puppet's first.
func leadsTo(index uint64) *raftpb.ConfState {
	if index == 0 {
		return voters(1, 2, 3)
	}
	return voters(1, 2, 3, 100+index)
}

func (m *confModel) step() {
	switch n := m.r.IntN(10); {
	case n < 3:
		m.handOut(1 + m.r.Uint64N(3))
	case n < 6 && len(m.late) > 0:
		m.ApplyConfStateAt(m.late[0], leadsTo(m.late[0]))
		m.told = append(m.told, m.pop())
	case n == 6 && len(m.late) > 0:
		m.Applied(m.pop()) // it is forgotten
	case n == 7 && len(m.told) > 0:
		i := m.told[m.r.IntN(len(m.told))]
		m.ApplyConfStateAt(i, leadsTo(i)) // again
	case n == 8 && len(m.late) == 0:
		m.Applied(m.last)
	case n == 9 && m.r.IntN(2) == 0:
		m.last += 1 + m.r.Uint64N(3)
		m.restore(m.last, leadsTo(m.last))
		m.newest, m.has = m.last, 0
	}
}

func (m *confModel) handOut(n uint64) {
	m.commitChanges(int(n))
	for i := m.last - n + 1; i <= m.last; i++ {
		if i > m.has {
			m.late, m.newest = append(m.late, i), i
		}
	}
}

func (m *confModel) pop() (index uint64) {
	index, m.late = m.late[0], m.late[1:]
	return index
}

// Whatever comes in between, the lease is refused or counts under the configuration
// that raft ends up in, and nothing that is said in turn, late or once more is a misuse.
func TestTheLeaseCountsUnderWhatRaftEndsUpIn(t *testing.T) {
	settled := 0
	for seed := range uint64(500) {
		m := &confModel{r: rand.New(rand.NewPCG(seed, 0))}
		m.has = m.r.Uint64N(6)
		m.puppet = newPuppet(t, func(c *Config) { c.ConfIndex = m.has })
		for range 30 {
			m.step()
			if m.mu.misuse != nil {
				t.Fatalf("seed %d: %v", seed, m.mu.misuse)
			}
			got, want := m.mu.conf.voters.String(), core.Voters(leadsTo(m.newest)).String()
			if m.mu.conf.pending() {
				continue
			}
			if settled++; got != want {
				t.Fatalf("seed %d: voters %v, want %v", seed, got, want)
			}
		}
	}
	if settled < 1000 {
		t.Errorf("no change was open %d times, want 1000 and more, or this proves little", settled)
	}
}
