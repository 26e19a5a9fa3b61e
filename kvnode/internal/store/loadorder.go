package store

// orderer gives chains their places in the ordered tree, on a processor of its own: for a
// million keys in no order that takes as long as all else that a load does. The tree is its
// alone until finish returns; nobody sees the index yet, so it takes no lock.
type orderer struct {
	index *index
	batch []*chain // not handed over yet
	queue chan []*chain
	done  chan struct{}
}

const (
	// orderBatch is how many chains are handed over at once. Fewer: handing over costs more
	// than their places.
	orderBatch = 1024
	// orderAhead is how many batches may wait, some 100 KiB.
	orderAhead = 16
)

func newOrderer(x *index) *orderer {
	o := &orderer{index: x, queue: make(chan []*chain, orderAhead), done: make(chan struct{})}
	go o.run()
	return o
}

func (o *orderer) run() {
	defer close(o.done)
	for batch := range o.queue {
		for _, c := range batch {
			o.index.ordered.Load(c) // as Set, and quicker for one above all others
		}
	}
}

// add is told of each chain once.
func (o *orderer) add(c *chain) {
	if o.batch = append(o.batch, c); len(o.batch) == orderBatch {
		o.queue <- o.batch
		o.batch = make([]*chain, 0, orderBatch)
	}
}

// finish returns when all chains have their places.
func (o *orderer) finish() {
	o.queue <- o.batch
	close(o.queue)
	<-o.done
}
