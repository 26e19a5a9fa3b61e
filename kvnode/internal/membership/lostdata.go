package membership

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// # Lost data
//
// A member must not take part once its data directory was wiped, or went back in time because an old image of its disk
// was restored or the disk lost synced writes. Its votes, its lease promises and the entries that it acknowledged are
// gone, so with its vote a leader could be elected that lacks an acknowledged write.
//
// A wiped directory has a new instance (Instances). A directory that went back has the same one, so its log is compared
// with what its peers have heard from the member (StaleDetector, docs/adr/0019-set-back.md). No single peer has heard
// everything, so the second check finds most such directories, and not all.

// registrationChunk is the number of bytes of entries that Instances reads from the log at a time.
const registrationChunk = 1 << 20

// InstancesConfig configures Instances.
type InstancesConfig struct {
	Store interface {
		Registry
		Applied() uint64
	}
	Log interface {
		LastIndex() (uint64, error)
		Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error)
	}
	Links interface {
		Peers() []transport.PeerStatus
	}
}

// Instances finds the instance of the data directory that a member is registered with.
type Instances struct{ cfg InstancesConfig }

// NewInstances returns Instances.
func NewInstances(cfg InstancesConfig) *Instances { return &Instances{cfg} }

// Of returns the instance that a member is registered with, "" if this member knows of none. The registry comes first.
// After it comes a registration that is in the log but not applied yet, committed or not: right after a start, before
// a leader has told this member what is committed, only the log has it.
func (i *Instances) Of(id uint64) (string, error) {
	for {
		// Applied is read before Members, so the registry is at least as new as applied.
		applied := i.cfg.Store.Applied()
		if m := i.cfg.Store.Members().ByID[id]; m.Instance != "" {
			return m.Instance, nil
		}
		instance, err := i.registeredBehind(applied, id)
		switch {
		case err == nil:
			return instance, nil
		case errors.Is(err, raft.ErrUnavailable):
			// A new leader has truncated the log meanwhile.
		case !errors.Is(err, raft.ErrCompacted):
			return "", fmt.Errorf("look for the registration of member %x in the log: %w", id, err)
		case i.cfg.Store.Applied() == applied:
			// The log begins with a snapshot that the store has not restored yet, which can take minutes. A peer that
			// was accepted before may connect again meanwhile.
			for _, p := range i.cfg.Links.Peers() {
				if p.ID == id && p.Hello.Instance != "" {
					return p.Hello.Instance, nil
				}
			}
			return "", fmt.Errorf("the instance of member %x is not known until a snapshot is restored, try again then: %w", id, err)
		}
	}
}

// registeredBehind returns the instance in the first registration of a member behind an index of the log. When they
// are applied, the first one counts.
func (i *Instances) registeredBehind(index, id uint64) (instance string, err error) {
	last, err := i.cfg.Log.LastIndex()
	if err != nil {
		return "", err
	}
	for next := index + 1; next <= last; {
		entries, err := i.cfg.Log.Entries(next, last+1, registrationChunk)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if e.GetType() != raftpb.EntryNormal || !store.IsRegistration(e.GetData()) {
				continue
			}
			c, err := store.DecodeCommand(e.GetData())
			if err == nil && c.Register.ID == id && c.Register.Instance != "" {
				return c.Register.Instance, nil
			}
		}
		next += uint64(len(entries))
	}
	return "", nil
}

// StaleDetector detects data directories that went back in time. It records what each member must have on its disk
// because of the answers that it gave, and refuses a new process of the member that has less.
type StaleDetector struct {
	mu struct {
		sync.Mutex
		of map[uint64]*diskRecord
	}
}

// diskRecord is what one member must have on its disk. It only grows, so a process that was refused is refused again.
type diskRecord struct {
	// term is the lowest possible term of its hard state, and index the lowest possible end of its log: the member
	// voted or acknowledged entries in term, and knew index as committed.
	term, index uint64
	// acked is the index that it acknowledged to the leader of ackedTerm. A leader of a later term may have truncated
	// its log below acked.
	acked, ackedTerm uint64
	// accepted are the newest accepted processes, the last one at the end. An accepted process is not checked again:
	// what was recorded since may be what this very process said.
	accepted []string
}

// maxAccepted bounds the accepted processes that are remembered for each member. A process that still runs connects
// again whenever another one has taken its connections, so it stays among the newest.
const maxAccepted = 16

// NewStaleDetector returns a StaleDetector without records.
func NewStaleDetector() *StaleDetector {
	d := &StaleDetector{}
	d.mu.of = make(map[uint64]*diskRecord)
	return d
}

// Observe records what an answer to a vote request or to entries says about the sender's disk. The vote, the commit
// index and the acknowledged entries are durable before the sender answers.
func (d *StaleDetector) Observe(m *raftpb.Message) {
	acks := m.GetType() == raftpb.MsgAppResp && !m.GetReject()
	if !acks && m.GetType() != raftpb.MsgVoteResp && m.GetType() != raftpb.MsgPreVoteResp {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.mu.of[m.GetFrom()]
	switch {
	case r == nil: // forgotten: the member's next process must not be refused because of this one's answers
	case acks:
		r.acknowledge(m.GetTerm(), m.GetIndex())
	default:
		r.index = max(r.index, m.GetCommit())
		if m.GetType() == raftpb.MsgVoteResp && !m.GetReject() {
			r.term = max(r.term, m.GetTerm())
		}
	}
}

func (r *diskRecord) acknowledge(term, index uint64) {
	r.term = max(r.term, term)
	if term > r.ackedTerm {
		r.ackedTerm, r.acked = term, 0
	}
	if term == r.ackedTerm {
		r.acked = max(r.acked, index)
	}
}

// Check refuses the hello of a process whose disk has less than its member must have. It does not wait for the raft
// loop, which may wait for a slow disk.
func (d *StaleDetector) Check(h *transport.Hello) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.mu.of[h.From]
	if r == nil {
		r = &diskRecord{}
		d.mu.of[h.From] = r
	}
	if h.Log.Process == "" {
		return nil // a former version does not send its log's end; a leader that knows more ends it later
	}
	if slices.Contains(r.accepted, h.Log.Process) {
		r.accept(h.Log.Process)
		return nil
	}
	term, index := r.term, r.index
	if h.Log.Term <= r.ackedTerm {
		index = max(index, r.acked)
	}
	if h.Log.Term < term || h.Log.Last < index {
		return &transport.Refusal{Reason: transport.ReasonWiped, Term: term, Index: index, Text: fmt.Sprintf(
			"member %x (%s) has gone back in time: it comes with a log that ends at index %d, in term %d, but it had acknowledged index %d, and term %d",
			h.From, h.Name, h.Log.Last, h.Log.Term, index, term)}
	}
	r.term, r.index = max(r.term, h.Log.Term), max(r.index, h.Log.Commit)
	r.accept(h.Log.Process)
	return nil
}

// accept makes process the newest accepted one.
func (r *diskRecord) accept(process string) {
	r.accepted = slices.DeleteFunc(r.accepted, func(p string) bool { return p == process })
	if len(r.accepted) == maxAccepted {
		r.accepted = slices.Delete(r.accepted, 0, 1)
	}
	r.accepted = append(r.accepted, process)
}

// Forget drops the records of IDs that are not registered: a peer may connect under any number of IDs.
func (d *StaleDetector) Forget(ids ...uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		delete(d.mu.of, id)
	}
}
