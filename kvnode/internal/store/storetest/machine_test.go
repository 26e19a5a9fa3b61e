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
	"os"
	"path/filepath"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/leasetest"
)

// Machine is a store as the state machine of a simulated node. Besides what leasetest checks, it
// checks the store against itself, and panics if a check fails:
//
//   - A checkpoint has the index that the log was asked about, and is found after the next crash.
//   - Events come once for each revision, in order.
//   - A point read and a range at the same revision agree.
//   - A damaged snapshot is refused and changes nothing.
type Machine struct {
	cfg    Config
	store  *store.Store
	disk   disk
	random *rand.Rand // for faults outside the disk

	conf *raftpb.ConfState // as of the newest applied entry
	// notified is the newest revision with events from the store.
	notified int64
	reads    uint64
	// durable is the index of the newest checkpoint that was acknowledged or found. A crash must
	// not lose it.
	durable uint64
}

// Stats counts events of all machines of a run.
type Stats struct {
	Checkpoints int // that succeeded
	Restores    int // that succeeded
	Partial     int // checkpoints that failed after some of their commits
	Failed      int // commits and installations that failed
	Refused     int // checkpoints that the log did not allow
	Damaged     int // snapshots that were refused because of damage
	Unharmed    int // damaged snapshots in which the damage had no effect

	Reopens       int // processes that started
	Behind        int // processes that started with fewer entries than the last one had applied
	Unsaid        int // processes that found a commit that had failed
	PowerFailures int // processes that started after a power failure
	Undurable     int // processes that found data that was not durable

	Stale       int // entries that were applied already
	Fenced      int // entries of another term
	Compactions int
}

var _ leasetest.Machine = (*Machine)(nil)

// Config configures the machines of a run. Seed and Dir are required.
type Config struct {
	// Seed decides what fails.
	Seed uint64
	// WaitIdle waits until the store's own goroutines are idle, as synctest.Wait does. Without it,
	// they run when the Go scheduler lets them, and a run may not repeat.
	WaitIdle func()
	// Dir is for snapshots that arrive, and for bbolt databases.
	Dir string
	// Bolt keeps checkpoints in bbolt databases. Default: in memory.
	Bolt bool
	// Cleanup registers functions to run at the end, as testing.T.Cleanup does. Optional.
	Cleanup func(func())
	Stats   *Stats
}

// commitBytes splits checkpoints into several commits in every second run.
func (cfg Config) commitBytes() int64 { return int64(cfg.Seed%2) * 500 }

func (cfg Config) newDisk(id uint64) (disk, error) {
	random := rand.New(rand.NewPCG(cfg.Seed, id))
	dir := filepath.Join(cfg.Dir, fmt.Sprint("node-", id))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if cfg.Bolt {
		return openBolt(filepath.Join(dir, "db"), random, cfg.Stats)
	}
	return newMemoryDisk(dir, random, cfg.Stats), nil
}

// NewMachine returns a function for sim.Config.NewMachine.
func NewMachine(cfg Config) func(id uint64, conf *raftpb.ConfState) leasetest.Machine {
	if cfg.Stats == nil {
		cfg.Stats = &Stats{}
	}
	if cfg.WaitIdle == nil {
		cfg.WaitIdle = func() {}
	}
	if cfg.Cleanup == nil {
		cfg.Cleanup = func(func()) {}
	}
	return func(id uint64, conf *raftpb.ConfState) leasetest.Machine {
		d, err := cfg.newDisk(id)
		must(err)
		m := &Machine{cfg: cfg, disk: d, random: rand.New(rand.NewPCG(^cfg.Seed, id))}
		must(m.open())
		for conf != nil && m.durable == 0 {
			// leasetest's disks start in the same way.
			m.store.ApplyConf(1, 1, conf, nil)
			if at, err := m.store.SaveCheckpoint(nil); err == nil {
				m.conf, m.durable = conf, at.Index
			}
		}
		return m
	}
}

func (m *Machine) open() (err error) {
	if m.store, err = store.Open(store.Config{Backend: m.disk, Events: m.events, CommitBytes: m.cfg.commitBytes()}); err != nil {
		return err
	}
	m.cfg.Cleanup(func() { must(m.store.Close()) })
	m.notified, m.conf = m.store.Revision(), m.store.Durable().ConfState
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
		m.cfg.WaitIdle()
	}
	switch {
	case errors.Is(r.Err, store.ErrStale):
		m.cfg.Stats.Stale++
	case errors.Is(r.Err, store.ErrFenced):
		m.cfg.Stats.Fenced++
	}
	return out
}

// sum returns a hash of a result.
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

// events checks that the store passes on each revision once, in order.
func (m *Machine) events(revision int64, writes []store.Write) {
	if revision != m.notified+1 || len(writes) == 0 {
		panic(fmt.Sprintf("%d events of revision %d after those of %d", len(writes), revision, m.notified))
	}
	m.notified = revision
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

// Each rangeEvery-th point read is compared with a range.
const rangeEvery = 16

// Read implements leasetest.Machine.
func (m *Machine) Read(key uint64) (version, newest uint64) {
	kv, revision := m.store.Get(name(key))
	if m.reads++; m.reads%rangeEvery == 0 {
		m.compare(key, kv.Message(), revision)
	}
	return uint64(kv.GetModRevision()), uint64(revision)
}

// compare checks that a range at revision returns the same as a point read.
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

// Hash implements leasetest.Machine. Besides HashKV it covers the configuration and the members.
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
	at, err := m.store.SaveCheckpoint(func(index uint64) error {
		asked = index
		return committed(index)
	})
	// A checkpoint that failed may have made some of its commits.
	now := m.store.Durable().Index
	m.durable = max(m.durable, now)
	if now > was && now < asked {
		m.cfg.Stats.Partial++
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
		panic(fmt.Sprintf("a snapshot of index %d that was damaged was accepted and led to another state", m.durable))
	}
	m.cfg.Stats.Restores++
	return nil
}

// restored takes over the state of the store after a Restore.
func (m *Machine) restored() {
	at := m.store.Durable()
	m.durable, m.notified, m.conf = at.Index, at.Revision, at.ConfState
}

// restoreDamaged checks that a snapshot with a flipped bit, or without its end, changes nothing. If
// the damage is in unused bytes, the snapshot is restored, and its hash is returned.
func (m *Machine) restoreDamaged(data []byte) (unharmed uint64) {
	was, applied := m.Hash(), m.Applied()
	// The number of draws must not depend on the length, which depends on what has been freed.
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

// Reopen implements leasetest.Machine. In half of the cases the power fails. In a quarter it fails
// after the next process has opened the disk.
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
	if next.durable < m.Applied() {
		m.cfg.Stats.Behind++
	}
	return next, nil
}

// reopen returns the machine of the next process. The last process can change nothing any more.
func (m *Machine) reopen(powerFails bool) (*Machine, error) {
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
	next.durable = next.Applied()
	switch {
	case next.durable < m.durable:
		return nil, fmt.Errorf("back at index %d, but a checkpoint of %d was acknowledged, or found", next.durable, m.durable)
	case next.durable > m.durable:
		m.cfg.Stats.Unsaid++
	}
	if d := next.store.Durable(); d.Index != next.durable {
		return nil, fmt.Errorf("applied %d after opening a checkpoint of %d", next.durable, d.Index)
	}
	return next, nil
}
