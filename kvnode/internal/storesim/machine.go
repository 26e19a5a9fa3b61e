package storesim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/leaderlease/leasetest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
