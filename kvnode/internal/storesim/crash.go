package storesim

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease/leasetest"
)

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
