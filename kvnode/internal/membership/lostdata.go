package membership

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// # Lost data
//
// A member must not take part once its data directory was wiped, or went back in time because an old image of its disk
// was restored or the disk lost synced writes. Its votes, its lease promises and the entries that it acknowledged are
// gone, so with its vote a leader could be elected that lacks an acknowledged write.
//
// A wiped directory has a new instance (Instances). A directory that went back has the same one, so each peer
// compares the log in it with what that peer has heard from the member before (RollbackDetector,
// docs/adr/0019-set-back.md). No single peer has heard everything, so the second check finds most such directories,
// but not all.

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

// Instances looks up the instance, the identifier of a data directory, with which a member is registered.
type Instances struct{ cfg InstancesConfig }

// NewInstances returns Instances.
func NewInstances(cfg InstancesConfig) *Instances { return &Instances{cfg} }

// Of returns the instance that a member is registered with, "" if this member knows of none. If the registry has
// none, Of looks for a registration in the part of the log that is not applied yet, committed or not: right after a
// start, before a leader has told this member what is committed, only the log has it.
func (i *Instances) Of(id uint64) (string, error) {
	for {
		// Applied is read before Members, so the registry is at least as new as applied.
		applied := i.cfg.Store.Applied()
		if m := i.cfg.Store.Members().ByID[id]; m.Instance != "" {
			return m.Instance, nil
		}
		instance, err := i.registeredAfter(applied, id)
		switch {
		case err == nil:
			return instance, nil
		case errors.Is(err, raft.ErrUnavailable):
			// A new leader has truncated the log meanwhile: try again.
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

// registeredAfter returns the instance in the first registration of a member after an index of the log. If there are
// several, the first one counts when they are applied.
func (i *Instances) registeredAfter(index, id uint64) (instance string, err error) {
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

// RollbackDetector detects data directories that went back in time. It records what each member must have on its disk
// because of the answers that it gave, and refuses a new process of the member that has less.
type RollbackDetector struct {
	mu struct {
		sync.Mutex
		records map[uint64]*diskRecord // by member ID
	}
}

// diskRecord is what one member must have on its disk. A refused process stays refused: acked is reset only in a
// term above that of the process, and term rises with it.
type diskRecord struct {
	// The term of its hard state is at least term: it voted or acknowledged entries in that term. Its log
	// reaches index, which it knew as committed.
	term, index uint64
	// acked is the index that it acknowledged to the leader of ackedTerm. If its hard state has a later term, the
	// leader of that term may have truncated its log below acked.
	acked, ackedTerm uint64
	// accepted are the newest accepted processes, the last one at the end. An accepted process is not checked again,
	// because its own answers may have raised the other fields since its start.
	accepted []string
}

// maxAccepted limits the accepted processes of each member.
const maxAccepted = 16

// NewRollbackDetector returns a RollbackDetector without records.
func NewRollbackDetector() *RollbackDetector {
	d := &RollbackDetector{}
	d.mu.records = make(map[uint64]*diskRecord)
	return d
}

// Observe records what an answer to a vote request or to entries says about the sender's disk. The vote, the commit
// index and the acknowledged entries are durable before the sender answers.
func (d *RollbackDetector) Observe(m *raftpb.Message) {
	acks := m.GetType() == raftpb.MsgAppResp && !m.GetReject()
	if !acks && m.GetType() != raftpb.MsgVoteResp && m.GetType() != raftpb.MsgPreVoteResp {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.mu.records[m.GetFrom()]
	switch {
	case r == nil: // Forget has dropped it, so a late answer of this process must not count against the next one
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
// loop.
func (d *RollbackDetector) Check(h *transport.Hello) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.mu.records[h.From]
	if r == nil {
		r = &diskRecord{}
		d.mu.records[h.From] = r
	}
	if h.Log.Boot == "" {
		return nil // a former version does not send this; a leader's heartbeat may show the loss (raftLoop.rejectIndex)
	}
	if slices.Contains(r.accepted, h.Log.Boot) {
		r.accept(h.Log.Boot)
		return nil
	}
	term, index := r.term, r.index
	if h.Log.Term <= r.ackedTerm {
		index = max(index, r.acked)
	}
	if h.Log.Term < term || h.Log.Last < index {
		return &transport.Refusal{Reason: transport.ReasonLostData, Term: term, Index: index, Text: fmt.Sprintf(
			"member %x (%s) has gone back in time: it comes in term %d with a log that ends at index %d, but it had acknowledged term %d, and index %d",
			h.From, h.Name, h.Log.Term, h.Log.Last, term, index)}
	}
	r.term, r.index = max(r.term, h.Log.Term), max(r.index, h.Log.Commit)
	r.accept(h.Log.Boot)
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

// Forget drops the records of ids. It is called for IDs that are not registered, because a peer may connect under any
// number of them.
func (d *RollbackDetector) Forget(ids ...uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		delete(d.mu.records, id)
	}
}

// DataLossConfig configures DataLoss.
type DataLossConfig struct {
	List *List
	Life *lifecycle.Lifecycle
	// Advice completes the error: what to do about a member that has lost data.
	Advice string
	// SaveLost makes the proof of the loss durable, so that this directory is not started again. If it returns false,
	// the proof was not written.
	SaveLost func(proof string) bool
	// AtStart is what this process found on its disk. Present returns its term and the last index of its log now.
	AtStart transport.DiskState
	Present func() (term, last uint64)
	Log     *slog.Logger
}

// DataLoss stops this member when a peer shows that this member has lost data.
type DataLoss struct{ cfg DataLossConfig }

// NewDataLoss returns a DataLoss.
func NewDataLoss(cfg DataLossConfig) *DataLoss { return &DataLoss{cfg} }

// maxProof is the limit in bytes of the proof in the identity file. Its text comes from a peer.
const maxProof = 1 << 10

// RefusedForLoss stops the member because a peer refuses it with ReasonLostData. The refusal proves a loss if
// this member lacked at its start, and still lacks, what the peer requires. Otherwise the peer requires nothing, or
// perhaps what this very process has acknowledged, and the directory may be started again.
func (d *DataLoss) RefusedForLoss(r *transport.RefusedError) {
	lacks := func(term, last uint64) bool { return term < r.Term || last < r.Index }
	d.StopMember(r.Peer, lacks(d.cfg.AtStart.Term, d.cfg.AtStart.Last) && lacks(d.cfg.Present()), r)
}

// StopMember stops the member with memberdir.ErrLost because of err, which a peer has shown. If err is proven and
// the peer is registered, err is durable before the member has stopped, so that this directory is not started
// again. The raft loop may call StopMember, and then waits for the disk.
func (d *DataLoss) StopMember(peer uint64, proven bool, err error) {
	d.cfg.Life.Fail(fmt.Errorf("%w: %w; %s", memberdir.ErrLost, err, d.cfg.Advice))
	if !proven || !d.cfg.List.isRegistered(peer) {
		return
	}
	if !d.cfg.SaveLost(transport.ShownUpTo(err.Error(), maxProof)) {
		d.cfg.Log.Error("cannot note that this member has lost its data; see to it that nothing starts it again with this directory")
	}
}
