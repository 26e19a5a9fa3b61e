package storetest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// Machine is a store as a node of a simulation has it.
type Machine struct {
	cfg   Config
	store *store.Store
	disk  disk
	// random is for what goes wrong outside the disk.
	random *rand.Rand

	// conf is the configuration as of the newest entry applied.
	conf *raftpb.ConfState
	// told is the newest revision whose events were given.
	told int64
	// reads counts reads: every so many are made in a second way, too.
	reads uint64
	// kept is the newest checkpoint that was acknowledged: a crash must not lose
	// it.
	kept uint64
}

// Stats counts what machines have been through.
type Stats struct {
	// Checkpoints and Restores were made, Parts counts checkpoints that failed after some
	// of their commits, Failed commits that failed,
	// Refused the checkpoints that the log did not allow, Damaged the snapshots
	// that were refused because they were damaged on the way, Unharmed those in
	// which it did not matter.
	Checkpoints, Restores, Parts, Failed, Refused, Damaged, Unharmed int
	// Reopens counts processes that began, Behind those that began with less
	// than the last one had applied, Unsaid those that found a commit that had
	// failed.
	Reopens, Behind, Unsaid int
	// PowerFailures counts processes that began after one, Unsettled those that
	// found what was not durable.
	PowerFailures, Unsettled int
	// Stale counts entries that had been applied before, Fenced those of another
	// term, Compactions those that dropped history.
	Stale, Fenced, Compactions int
}

var _ leasetest.Machine = (*Machine)(nil)

// Config chooses machines. Only Seed is required.
type Config struct {
	// Seed decides what fails.
	Seed uint64
	// Settle returns when the store's own goroutines have nothing left to do, as
	// synctest.Wait does. Without it, they run when the Go scheduler lets them,
	// and what depends on that may not repeat.
	Settle func()
	// Dir, if set, is where checkpoints are kept in bbolt databases. Default: in
	// memory.
	Dir string
	// Cleanup is told what to do at the end, as testing.T's is. Optional.
	Cleanup func(func())
	// Stats counts what happens.
	Stats *Stats
}

// cutBytes makes checkpoints of several commits in every second run.
func (cfg Config) cutBytes() int64 { return int64(cfg.Seed%2) * 500 }

// newDisk returns the empty disk of a node.
func (cfg Config) newDisk(id uint64) (disk, error) {
	random := rand.New(rand.NewPCG(cfg.Seed, id))
	if cfg.Dir != "" {
		return openBolt(filepath.Join(cfg.Dir, fmt.Sprintf("node-%d.db", id)), random, cfg.Stats)
	}
	return newMemoryDisk(random, cfg.Stats), nil
}

// NewMachine returns what sim.Config.NewMachine wants.
func NewMachine(cfg Config) func(id uint64, conf *raftpb.ConfState) leasetest.Machine {
	if cfg.Stats == nil {
		cfg.Stats = &Stats{}
	}
	if cfg.Settle == nil {
		cfg.Settle = func() {}
	}
	if cfg.Cleanup == nil {
		cfg.Cleanup = func(func()) {}
	}
	return func(id uint64, conf *raftpb.ConfState) leasetest.Machine {
		d, err := cfg.newDisk(id)
		must(err)
		m := &Machine{cfg: cfg, disk: d, random: rand.New(rand.NewPCG(^cfg.Seed, id))}
		must(m.open())
		for conf != nil && m.kept == 0 {
			// The same beginning as leasetest's disks have.
			m.store.ApplyConf(1, 1, conf, nil)
			if at, err := m.store.Checkpoint(nil); err == nil {
				m.conf, m.kept = conf, at.Index
			}
		}
		return m
	}
}

func (m *Machine) open() (err error) {
	if m.store, err = store.Open(store.Config{Backend: m.disk, Events: m.events, CutBytes: m.cfg.cutBytes()}); err != nil {
		return err
	}
	m.cfg.Cleanup(func() { must(m.store.Close()) })
	m.told, m.conf = m.store.Revision(), m.store.Durable().ConfState
	return nil
}

// Apply implements leasetest.Machine.
func (m *Machine) Apply(e *raftpb.Entry, conf *raftpb.ConfState) leasetest.Outcome {
	if e.GetType() != raftpb.EntryNormal {
		m.store.ApplyConf(e.GetIndex(), e.GetTerm(), conf, change(e))
		if conf != nil {
			m.conf = conf
		}
		return leasetest.Outcome{}
	}
	r := m.store.Apply(e.GetIndex(), e.GetTerm(), e.GetData())
	out := leasetest.Outcome{Sum: sum(r)}
	switch resp := r.Response.(type) {
	case *pb.PutResponse:
		out.Write, out.Version = r.ID, uint64(resp.GetHeader().GetRevision())
	case *pb.TxnResponse:
		out.Write, out.Version = r.ID, uint64(resp.GetHeader().GetRevision())
	case *pb.CompactionResponse:
		m.cfg.Stats.Compactions++
		m.cfg.Settle()
	}
	switch {
	case errors.Is(r.Err, store.ErrStale):
		m.cfg.Stats.Stale++
	case errors.Is(r.Err, store.ErrFenced):
		m.cfg.Stats.Fenced++
	}
	return out
}

// sum is equal for equal results.
func sum(r store.Result) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %v ", r.ID, r.Err)
	if r.Response != nil {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(r.Response)
		must(err)
		_, _ = h.Write(data)
	}
	return h.Sum64()
}

// events checks that each revision is told of once, in order.
func (m *Machine) events(revision int64, writes []store.Write) {
	if revision != m.told+1 || len(writes) == 0 {
		panic(fmt.Sprintf("%d events of revision %d after those of %d", len(writes), revision, m.told))
	}
	m.told = revision
	for _, w := range writes {
		if got := w.KV.GetModRevision(); got != revision {
			panic(fmt.Sprintf("event of revision %d among those of %d", got, revision))
		}
	}
}

// Applied implements leasetest.Machine.
func (m *Machine) Applied() uint64 { return m.store.Applied() }

// Conf implements leasetest.Machine.
func (m *Machine) Conf() *raftpb.ConfState { return m.conf }

// Durable implements leasetest.Machine.
func (m *Machine) Durable() bool { return true }

// rangeEvery is how often a read is made by Range as well.
const rangeEvery = 16

// Read implements leasetest.Machine.
func (m *Machine) Read(key uint64) (version, newest uint64) {
	kv, revision := m.store.Get(name(key))
	if m.reads++; m.reads%rangeEvery == 0 {
		m.compare(key, kv.Message(), revision)
	}
	return uint64(kv.GetModRevision()), uint64(revision)
}

// compare checks that a range as of revision shows what a point read has shown.
func (m *Machine) compare(key uint64, kv *mvccpb.KeyValue, revision int64) {
	resp, err := m.store.Range(context.Background(), &pb.RangeRequest{Key: name(key), Revision: revision})
	must(err)
	var got *mvccpb.KeyValue
	if len(resp.GetKvs()) > 0 {
		got = resp.GetKvs()[0]
	}
	if !proto.Equal(got, kv) || resp.GetHeader().GetRevision() != revision {
		panic(fmt.Sprintf("range of key %d as of revision %d: %v, a point read: %v", key, revision, resp, kv))
	}
}

// Hash implements leasetest.Machine. It covers what HashKV does not, too.
func (m *Machine) Hash() uint64 {
	kv, err := m.store.HashKV(0)
	must(err)
	h := fnv.New64a()
	conf := m.conf
	_, _ = fmt.Fprintf(h, "%+v %v %v %v %v ", kv, conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing(), conf.GetLearnersNext())
	members := m.store.Members()
	for _, id := range slices.Sorted(maps.Keys(members.ByID)) {
		_, _ = fmt.Fprintf(h, "%+v ", members.ByID[id])
	}
	b := []byte(nil)
	for _, id := range slices.Sorted(maps.Keys(members.Removed)) {
		b = binary.BigEndian.AppendUint64(b, id)
	}
	_, _ = h.Write(b)
	return h.Sum64()
}

// Checkpoint implements leasetest.Machine.
func (m *Machine) Checkpoint(committed func(index uint64) error) error {
	var asked uint64
	was := m.store.Durable().Index
	at, err := m.store.Checkpoint(func(index uint64) error {
		asked = index
		return committed(index)
	})
	// One that has failed may have got some of the way.
	now := m.store.Durable().Index
	m.kept = max(m.kept, now)
	if now > was && now < asked {
		m.cfg.Stats.Parts++
	}
	switch {
	case now < was || now > asked:
		panic(fmt.Sprintf("a checkpoint moved the newest from index %d to %d, where the log was asked about %d", was, now, asked))
	case errors.Is(err, errCommit):
		return err
	case err != nil:
		m.cfg.Stats.Refused++
		return err
	case at.Index != asked || asked != m.Applied():
		panic(fmt.Sprintf("a checkpoint of index %d, where the log was asked about %d and %d is applied", at.Index, asked, m.Applied()))
	}
	m.cfg.Stats.Checkpoints++
	return nil
}

// Snapshot implements leasetest.Machine.
func (m *Machine) Snapshot() (*raftpb.Snapshot, error) {
	snap, err := m.store.OpenSnapshot()
	if err != nil {
		return nil, err
	}
	var data bytes.Buffer
	at := snap.Checkpoint()
	if _, err := snap.WriteTo(&data); err != nil {
		return nil, errors.Join(err, snap.Close())
	}
	return &raftpb.Snapshot{
		Data:     data.Bytes(),
		Metadata: &raftpb.SnapshotMetadata{Index: &at.Index, Term: &at.Term, ConfState: at.ConfState},
	}, snap.Close()
}

// Restore implements leasetest.Machine.
func (m *Machine) Restore(snap *raftpb.Snapshot) error {
	unharmed := uint64(0)
	if m.random.IntN(2) == 0 {
		unharmed = m.restoreDamaged(bytes.Clone(snap.GetData()))
	}
	path, err := m.disk.arrive(snap.GetData())
	must(err)
	was, applied := m.Hash(), m.Applied()
	err = m.store.Restore(path)
	switch {
	case err != nil && !errors.Is(err, errCommit):
		panic(fmt.Sprintf("restore at index %d: %v", snap.GetMetadata().GetIndex(), err))
	case err != nil && (m.Hash() != was || m.Applied() != applied):
		panic(fmt.Sprintf("restore failed, but changed the state: applied %d, was %d", m.Applied(), applied))
	case err != nil:
		return err
	}
	m.restored()
	if unharmed != 0 && unharmed != m.Hash() {
		panic(fmt.Sprintf("a snapshot of index %d that was damaged was accepted and led to another state", m.kept))
	}
	m.cfg.Stats.Restores++
	return nil
}

// restored takes over what the store has been restored to.
func (m *Machine) restored() {
	at := m.store.Durable()
	m.kept, m.told, m.conf = at.Index, at.Revision, at.ConfState
}

// restoreDamaged checks that a snapshot with one bit turned, or without its end,
// changes nothing. If the damage is where nothing is kept, the state is that of
// the snapshot, and its hash is returned.
func (m *Machine) restoreDamaged(data []byte) (unharmed uint64) {
	was, applied := m.Hash(), m.Applied()
	// One draw, whatever the length: that depends on what has been freed.
	at := int(m.random.Uint64() % uint64(len(data)))
	if m.random.IntN(2) == 0 {
		data = data[:at]
	} else {
		data[at] ^= 1 << m.random.IntN(8)
	}
	path, err := m.disk.arrive(data)
	must(err)
	if err := m.store.Restore(path); err == nil {
		m.restored()
		m.cfg.Stats.Unharmed++
		return m.Hash()
	}
	if m.Hash() != was || m.Applied() != applied {
		panic(fmt.Sprintf("a snapshot that was refused changed the state: applied %d, was %d", m.Applied(), applied))
	}
	m.cfg.Stats.Damaged++
	return 0
}

// Reopen implements leasetest.Machine. Every second time the power has failed;
// otherwise it may fail when the next process has read what it has found.
func (m *Machine) Reopen(*raftpb.Snapshot) (leasetest.Machine, error) {
	m.cfg.Stats.Reopens++
	powerFails := m.random.IntN(2) == 0
	next, err := m.reopen(powerFails)
	if err == nil && !powerFails && m.random.IntN(2) == 0 {
		next, err = next.reopen(true)
	}
	if err != nil {
		return nil, err
	}
	if next.kept < m.Applied() {
		m.cfg.Stats.Behind++
	}
	return next, nil
}

// reopen returns the machine of the next process.
func (m *Machine) reopen(powerFails bool) (*Machine, error) {
	// The store of the last process ends with it. Whatever it still does is
	// lost.
	must(m.store.Close())
	if powerFails {
		m.cfg.Stats.PowerFailures++
	}
	d, err := m.disk.reopen(powerFails)
	if err != nil {
		return nil, err
	}
	next := &Machine{cfg: m.cfg, disk: d, random: m.random, reads: m.reads}
	if err := next.open(); err != nil {
		return nil, err
	}
	next.kept = next.Applied()
	switch {
	case next.kept < m.kept:
		return nil, fmt.Errorf("back at index %d, but a checkpoint of %d was acknowledged, or found", next.kept, m.kept)
	case next.kept > m.kept:
		m.cfg.Stats.Unsaid++
	}
	if d := next.store.Durable(); d.Index != next.kept {
		return nil, fmt.Errorf("applied %d after opening a checkpoint of %d", next.kept, d.Index)
	}
	return next, nil
}
