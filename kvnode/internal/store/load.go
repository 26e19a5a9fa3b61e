package store

import (
	"encoding/binary"
	"fmt"
)

// load builds the state from b. It refuses inconsistent data with ErrDamaged: a member must not
// serve, or vote with, a part of what it has acknowledged.
func load(b Backend) (*state, Checkpoint, error) {
	img, err := b.View()
	if err != nil {
		return nil, Checkpoint{}, err
	}
	st, c, err := loadImage(img)
	if cerr := img.Close(); err == nil {
		err = cerr
	}
	return st, c, err
}

// loadImage checks each record, and then the number of records and the sum of their checksums
// against the meta value, since a missing record has no checksum to fail.
func loadImage(img Image) (*state, Checkpoint, error) {
	m, err := decodeMeta(img.Meta())
	if err != nil {
		return nil, Checkpoint{}, err
	}
	c, err := m.checkpoint()
	if err != nil {
		return nil, Checkpoint{}, err
	}
	st := newState()
	m.restore(st, c.ConfState)
	l := loader{st: st, meta: &m, tree: newTreeBuilder(st.index)}
	err = img.Records(l.add)
	l.tree.finish()
	if err != nil {
		return nil, Checkpoint{}, err
	}
	if l.records != m.Records || l.sum != m.Sum {
		return nil, Checkpoint{}, fmt.Errorf("%w: %d records with sum %#x, want %d with %#x", ErrDamaged, l.records, l.sum, m.Records, m.Sum)
	}
	// Free what was compacted but not freed when the checkpoint was made. The next checkpoint
	// deletes the records.
	for st.trim(trimStep) {
		st.sealIfLarge(commitBytes)
	}
	return st, c, nil
}

// loader adds records to a state that has no readers yet, so it needs no lock.
type loader struct {
	st   *state
	meta *meta
	tree *treeBuilder // owns st.index.ordered until finish returns
	last *Version     // the newest version so far
	// records and sum are compared with the meta value.
	records int64
	sum     uint64
}

// add loads one record. Records come in the order of writes, so each version becomes the head of
// its chain.
func (l *loader) add(key, value []byte) error {
	if isLeaseKey(key) {
		return l.addLease(key, value)
	}
	v, name, err := decodeRecord(key, value)
	if err != nil {
		return err
	}
	if v.mod > l.meta.Revision {
		return fmt.Errorf("%w: record of revision %d above the newest, %d", ErrDamaged, v.mod, l.meta.Revision)
	}
	if l.last != nil && (v.mod < l.last.mod || v.mod == l.last.mod && v.sub <= l.last.sub) {
		return fmt.Errorf("%w: record of revision %d.%d after %d.%d", ErrDamaged, v.mod, v.sub, l.last.mod, l.last.sub)
	}
	l.last = v
	l.records++
	l.sum += uint64(binary.BigEndian.Uint32(value))
	c := l.st.index.find(name)
	if c == nil {
		c = newChain(name)
		l.st.index.byKey.add(c)
		l.tree.add(c)
		if v.tombstone() {
			l.st.index.dead.Set(c) // updateDead ignores a tombstone without a version before it
		}
	}
	v.of = c
	prev := c.head.Load()
	v.prev.Store(prev)
	c.head.Store(v)
	l.st.leases.reattach(prev.live(), v)
	l.st.garbage.add(v)
	l.st.index.updateDead(v.mod, v)
	// Watches and History start at the compacted revision or later.
	if v.mod >= l.meta.Compacted {
		l.st.history.add(v)
	}
	return nil
}

// treeBuilder inserts chains into the ordered tree in a goroutine of its own. For a million keys in
// random order that takes as long as the rest of a load. It owns the tree until finish returns.
type treeBuilder struct {
	index *index
	batch []*chain // not handed over yet
	queue chan []*chain
	done  chan struct{}
}

const (
	// treeBatch is how many chains are handed over at once. With smaller batches, the channel
	// costs more than the insertions.
	treeBatch = 1024
	// treeQueue is how many batches may wait, 128 KiB.
	treeQueue = 16
)

func newTreeBuilder(x *index) *treeBuilder {
	b := &treeBuilder{index: x, queue: make(chan []*chain, treeQueue), done: make(chan struct{})}
	go b.run()
	return b
}

func (b *treeBuilder) run() {
	defer close(b.done)
	for batch := range b.queue {
		for _, c := range batch {
			b.index.ordered.Load(c) // like Set, but faster for ascending keys
		}
	}
}

// add is called once for each chain.
func (b *treeBuilder) add(c *chain) {
	if b.batch = append(b.batch, c); len(b.batch) == treeBatch {
		b.queue <- b.batch
		b.batch = make([]*chain, 0, treeBatch)
	}
}

// finish returns when the tree contains all chains.
func (b *treeBuilder) finish() {
	b.queue <- b.batch
	close(b.queue)
	<-b.done
}
