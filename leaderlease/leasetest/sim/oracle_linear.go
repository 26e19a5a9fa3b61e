package sim

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// linearOracle records the history of each key and has porcupine look for a
// linear order. It knows nothing of versions being ordered.
type linearOracle struct {
	seq     int64 // calls and returns are strictly ordered
	keys    uint64
	slots   []*history
	byKey   map[uint64]*history
	pending map[uint64]pendingWrite // by write
	closed  []*history
}

type pendingWrite struct {
	h    *history
	call int64
	node uint64
}

// history is what happened to one key.
type history struct {
	key  uint64
	ops  []porcupine.Operation
	open int // reads under way
	// writes under way, each until its client has given it up.
	writes []openWrite
}

type openWrite struct {
	write uint64
	until time.Duration
}

const (
	historyLen    = 2000 // operations of one history
	historyWidth  = 5    // reads, and writes, of one key under way
	historyBudget = 10 * time.Second
)

// keyOp is the input of an operation: a write of version, or a read, which returns the
// version.
type keyOp struct {
	write   bool
	version uint64
}

// keyModel is a register: a write sets it, a read shows it.
var keyModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		op, ok := input.(keyOp)
		if op.write {
			return ok, op.version
		}
		return ok && output == state, state
	},
	DescribeOperation: func(input, output any) string {
		if op, ok := input.(keyOp); ok && op.write {
			return fmt.Sprintf("write %d", op.version)
		}
		return fmt.Sprintf("read %d", output)
	},
}

func (o *linearOracle) init() {
	o.byKey = make(map[uint64]*history)
	o.pending = make(map[uint64]pendingWrite)
}

// key returns the key in a slot: a new one when the history of the last is full.
func (o *linearOracle) key(slot int) uint64 {
	for len(o.slots) <= slot {
		o.slots = append(o.slots, o.open())
	}
	if h := o.slots[slot]; len(h.ops) >= historyLen {
		o.closed = append(o.closed, h)
		delete(o.byKey, h.key)
		o.slots[slot] = o.open()
	}
	return o.slots[slot].key
}

func (o *linearOracle) open() *history {
	o.keys++
	h := &history{key: o.keys, ops: make([]porcupine.Operation, 0, historyLen)}
	o.byKey[h.key] = h
	return h
}

func (o *linearOracle) tick() int64 {
	o.seq++
	return o.seq
}

// begin records that a write is proposed, unless too many are under way. If it
// is committed, it ends when it is first applied anywhere, acknowledged or not;
// else it never happened.
func (o *linearOracle) begin(key, write, node uint64, now, until time.Duration) bool {
	h := o.byKey[key]
	h.writes = slices.DeleteFunc(h.writes, func(w openWrite) bool { return w.until <= now })
	if len(h.writes) >= historyWidth {
		return false
	}
	h.writes = append(h.writes, openWrite{write, until})
	o.pending[write] = pendingWrite{h: h, call: o.tick(), node: node}
	return true
}

func (o *linearOracle) committed(write, version uint64) {
	p, ok := o.pending[write]
	if !ok {
		return
	}
	p.h.writes = slices.DeleteFunc(p.h.writes, func(w openWrite) bool { return w.write == write })
	// Every committed write is recorded, because later reads may show it. A write happens
	// twice if the network has duplicated its proposal.
	p.h.ops = append(p.h.ops, porcupine.Operation{
		ClientId: int(p.node), Call: p.call, Return: o.tick(), Input: keyOp{write: true, version: version},
	})
}

// pendingRead is a recorded read under way. The zero value records nothing.
type pendingRead struct {
	o    *linearOracle
	h    *history
	call int64
}

func (o *linearOracle) beginRead(key uint64) pendingRead {
	h := o.byKey[key]
	if h == nil || h.open >= historyWidth || len(h.ops) >= historyLen {
		return pendingRead{}
	}
	h.open++
	return pendingRead{o: o, h: h, call: o.tick()}
}

func (p pendingRead) drop() {
	if p.h != nil {
		p.h.open--
	}
}

func (p pendingRead) done(node, version uint64) {
	if p.h == nil {
		return
	}
	p.h.open--
	p.h.read(node, version, p.call, p.o.tick())
}

// instant records a read that took no time.
func (o *linearOracle) instant(key, node, version uint64) {
	if h := o.byKey[key]; h != nil && len(h.ops) < historyLen {
		h.read(node, version, o.tick(), o.tick())
	}
}

func (h *history) read(node, version uint64, call, ret int64) {
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: int(node), Call: call, Return: ret, Input: keyOp{}, Output: version,
	})
}

// checkHistories judges what has been recorded.
func (s *sim) checkHistories() {
	for _, h := range slices.Concat(s.linear.closed, s.linear.slots) {
		if len(h.ops) == 0 {
			continue
		}
		s.res.Histories++
		verdict := porcupine.CheckOperationsTimeout(keyModel, h.ops, historyBudget)
		if verdict == porcupine.Ok {
			continue
		}
		s.res.picture = func(w io.Writer) error {
			_, info := porcupine.CheckOperationsVerbose(keyModel, h.ops, historyBudget)
			return porcupine.Visualize(keyModel, info, w)
		}
		s.violatef("porcupine", 0, "history of key %d with %d operations: %s", h.key, len(h.ops), verdict)
		return
	}
}
