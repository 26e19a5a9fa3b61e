package store

import "sync/atomic"

// Ops counts what applied entries asked of the store, as etcd counts it: an operation of
// a transaction is one, and so is each key of a TTL lease that is revoked.
type Ops struct {
	Ranges, Puts, Deletes uint64
	// Txns counts what consisted of two of these or more.
	Txns uint64
	// PutBytes is the size of the keys and values that were put.
	PutBytes uint64
}

// ops is an Ops that one goroutine writes at a time.
type ops struct{ ranges, puts, deletes, txns, putBytes atomic.Uint64 }

func (o *ops) add(n *Ops) {
	if n.Ranges+n.Puts+n.Deletes > 1 {
		o.txns.Add(1)
	}
	o.ranges.Add(n.Ranges)
	o.puts.Add(n.Puts)
	o.deletes.Add(n.Deletes)
	o.putBytes.Add(n.PutBytes)
}

// Ops returns what was asked since Open.
func (s *Store) Ops() Ops {
	return Ops{
		Ranges: s.ops.ranges.Load(), Puts: s.ops.puts.Load(), Deletes: s.ops.deletes.Load(),
		Txns: s.ops.txns.Load(), PutBytes: s.ops.putBytes.Load(),
	}
}
