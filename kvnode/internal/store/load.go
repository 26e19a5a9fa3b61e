package store

import (
	"encoding/binary"
	"fmt"
)

// load builds the state that b holds, and the checkpoint that it is. A backend that
// contradicts itself is refused with ErrDamaged: a member that served or voted on a part
// of what it had acknowledged would do harm, and one that does not start does none.
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

// loadImage checks, besides each record, their number and the sum of their checksums
// against the meta record: a record that is missing altogether has no checksum to be wrong.
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
	if err := m.restore(st); err != nil {
		return nil, Checkpoint{}, err
	}
	l := loader{st: st, meta: &m, tree: newTreeBuilder(st.index)}
	err = img.Records(l.add)
	l.tree.finish()
	if err != nil {
		return nil, Checkpoint{}, err
	}
	if l.records != m.Records || l.sum != m.Sum {
		return nil, Checkpoint{}, fmt.Errorf("%w: %d records with sum %#x, want %d with %#x", ErrDamaged, l.records, l.sum, m.Records, m.Sum)
	}
	// What had been compacted but not freed when the checkpoint was made. Nobody has the state yet,
	// so it takes no lock; the records go with the cuts of the first checkpoint.
	for st.trim(trimStep) {
		st.sealIfLarge(commitBytes)
	}
	return st, c, nil
}

// loader adds records to a state that nobody sees yet, so it takes no lock, and in which
// order it fills the state does not matter.
type loader struct {
	st   *state
	meta *meta
	tree *treeBuilder // has the chains, and st.index.ordered, until it is finished
	last *Version     // the newest one added: records come in the order of revisions
	// records and sum are what the meta record must have said.
	records int64
	sum     uint64
}

// add makes a version of a record. Records are in the order of writes, so each becomes
// the head of its key's chain, above what came before it.
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
			l.st.index.dead.Set(c) // note has no version before to tell that by
		}
	}
	v.of = c
	prev := c.head.Load()
	v.prev.Store(prev)
	c.head.Store(v)
	l.st.leases.reattach(prev.live(), v)
	l.st.garbage.add(v)
	l.st.index.updateDead(v.mod, v)
	// Watches and History begin at the compacted revision at the earliest.
	if v.mod >= l.meta.Compacted {
		l.st.history.add(v)
	}
	return nil
}

// treeBuilder gives chains their places in the ordered tree, on a processor of its own: for a
// million keys in no order that takes as long as all else that a load does. The tree is its
// alone until finish returns; nobody sees the index yet, so it takes no lock.
type treeBuilder struct {
	index *index
	batch []*chain // not handed over yet
	queue chan []*chain
	done  chan struct{}
}

const (
	// treeBatch is how many chains are handed over at once. Fewer: handing over costs more
	// than their places.
	treeBatch = 1024
	// treeQueue is how many batches may wait, some 100 KiB.
	treeQueue = 16
)

func newTreeBuilder(x *index) *treeBuilder {
	o := &treeBuilder{index: x, queue: make(chan []*chain, treeQueue), done: make(chan struct{})}
	go o.run()
	return o
}

func (o *treeBuilder) run() {
	defer close(o.done)
	for batch := range o.queue {
		for _, c := range batch {
			o.index.ordered.Load(c) // as Set, and quicker for one above all others
		}
	}
}

// add is told of each chain once.
func (o *treeBuilder) add(c *chain) {
	if o.batch = append(o.batch, c); len(o.batch) == treeBatch {
		o.queue <- o.batch
		o.batch = make([]*chain, 0, treeBatch)
	}
}

// finish returns when all chains have their places.
func (o *treeBuilder) finish() {
	o.queue <- o.batch
	close(o.queue)
	<-o.done
}
