package leasetest

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/internal/hook"
)

// change proposes a configuration change and gives it 10 ms.
func (s *script) change(a *args) {
	n := a.node(s, 0)
	v1, leave := a.flag("v1"), a.flag("leave")
	cc := &raftpb.ConfChangeV2{}
	for _, kind := range []struct {
		key string
		typ raftpb.ConfChangeType
	}{
		{"add", raftpb.ConfChangeAddNode},
		{"remove", raftpb.ConfChangeRemoveNode},
		{"learner", raftpb.ConfChangeAddLearnerNode},
	} {
		for _, id := range a.ids(kind.key) {
			cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: kind.typ.Enum(), NodeId: new(id)})
		}
	}
	switch {
	case a.flag("explicit"):
		cc.Transition = raftpb.ConfChangeTransitionJointExplicit.Enum()
	case a.flag("implicit"):
		cc.Transition = raftpb.ConfChangeTransitionJointImplicit.Enum()
	}
	if leave == (len(cc.GetChanges()) > 0) || v1 && len(cc.GetChanges()) != 1 {
		a.fail("change: want either leave or changes, and one change with v1")
	}
	if v1 {
		n.Change(&raftpb.ConfChange{Type: cc.GetChanges()[0].GetType().Enum(), NodeId: cc.GetChanges()[0].NodeId})
	} else {
		n.Change(cc)
	}
	s.c.Run(10 * time.Millisecond)
}

func (s *script) checkpoint(a *args) { n := a.node(s, 0); _ = n.machine.Checkpoint(n.committed) }
func (s *script) compact(a *args)    { a.node(s, 0).Compact() }
func (s *script) invalidate(a *args) { hook.Invalidate(a.node(s, 0).lease) }
func (s *script) close(a *args)      { a.node(s, 0).lease.Close() }

// write proposes a write and waits until it is applied, for at most 5 s.
func (s *script) write(a *args) {
	n, key := a.node(s, 0), a.id("key")
	s.writes++
	done := false
	n.Write(key, s.writes, func(version uint64) {
		done = true
		s.written[key] = max(s.written[key], version)
		s.event("node %d: write %d: version %d", n.ID, key, version)
	})
	if a.flag("nowait") {
		return
	}
	if !s.c.RunUntil(5*time.Second, func() bool { return done }) {
		s.event("node %d: write %d: none", n.ID, key)
	}
}

// read starts a read. Its answer is printed by the directive in which it comes.
func (s *script) read(a *args) {
	n, key := a.node(s, 0), a.id("key")
	floor, done := s.written[key], false
	quorum, ctx := a.flag("quorum"), s.context(a, n)
	s.reads++
	seq := s.reads
	s.open[seq] = n.opens(floor)
	report := func(version uint64, path leaderlease.Path, err error) {
		if done {
			s.wrong("a read is answered twice")
		}
		done = true
		delete(s.open, seq)
		switch {
		case err != nil:
			s.event("node %d: read %d: %v", n.ID, key, err)
		default:
			s.event("node %d: read %d: version %d by %v%s", n.ID, key, version, path, stale(version, floor))
		}
	}
	if a.flag("raft") {
		s.open[seq] = openRead{floor: floor} // raft's ReadIndex may never answer
		n.exec(func() { n.stockRead(func() { report(n.Version(key), leaderlease.PathReadIndex, nil) }) })
	} else {
		n.read(ctx, key, quorum, report)
	}
	s.c.RunUntil(a.duration("wait", 0), func() bool { return done })
	if !done {
		s.event("node %d: read %d: waits", n.ID, key)
	}
}

// openRead is a read that waits: the least version that it may show, and the node, leader,
// term and process that it was started with.
type openRead struct {
	floor, node, leader, term uint64
	run                       int
}

func (n *Node) opens(floor uint64) openRead {
	o := openRead{floor: floor, node: n.ID, run: n.run}
	if n.up && n.lease != nil {
		i := n.lease.Info()
		o.leader, o.term = i.Leader, i.Term
	}
	return o
}

func (s *script) tryRead(a *args) {
	n, key := a.node(s, 0), a.id("key")
	version, st := n.TryRead(key)
	if st != leaderlease.StatusValid {
		s.event("node %d: try-read %d: refused, %v", n.ID, key, st)
		return
	}
	s.event("node %d: try-read %d: version %d%s", n.ID, key, version, stale(version, s.written[key]))
}

// stale marks a version below one that was known before the read began.
func stale(version, floor uint64) string {
	if version < floor {
		return " STALE"
	}
	return ""
}

// context returns the context of a read. It never ends, or ends with the directive cancel
// (cancel=later), or before the read has begun to wait (cancel=early).
func (s *script) context(a *args, n *Node) context.Context {
	a.t.Helper()
	when := a.values("cancel")
	if len(when) == 0 || n.lease == nil {
		return context.Background()
	}
	c := s.newContext(n.lease, when[0] == "early")
	s.contexts = append(s.contexts, c)
	return c
}

// cancel ends every context.
func (s *script) cancel(a *args) {
	a.t.Helper()
	for _, c := range s.contexts {
		c.end(a.t)
	}
	s.contexts = nil
}

// work begins a Lease.Context, under a parent that the directive cancel ends.
func (s *script) work(a *args) {
	n := a.node(s, 0)
	parent := s.newContext(n.lease, false)
	_, stop, err := n.lease.Context(parent)
	if err != nil {
		s.event("node %d: work: %v", n.ID, err)
		return
	}
	s.contexts, s.works = append(s.contexts, parent), append(s.works, stop)
}

// stopWork stops the work contexts, which use timers of the operating system.
func (s *script) stopWork() {
	for _, stop := range s.works {
		stop()
	}
}

// askedContext is a context that the test ends, in one goroutine. It reports a call of its
// methods while the Lease is locked, because an embedder's context may call the Lease.
type askedContext struct {
	context.Context
	lease *leaderlease.Lease
	done  chan struct{}
	err   error
	// early ends the context as soon as a function is registered with AfterFunc.
	early bool
	hooks []func()
	wrong func(what string)
}

func (s *script) newContext(l *leaderlease.Lease, early bool) *askedContext {
	return &askedContext{Context: context.Background(), lease: l, done: make(chan struct{}), early: early, wrong: s.wrong}
}

// Err implements context.Context.
func (c *askedContext) Err() error {
	c.see()
	return c.err
}

// Done implements context.Context.
func (c *askedContext) Done() <-chan struct{} {
	c.see()
	return c.done
}

// Value implements context.Context.
func (c *askedContext) Value(any) any {
	c.see()
	return nil
}

// AfterFunc implements the optional interface of context.AfterFunc. If the context ends
// early, f still waits for end, as if for the goroutine that would call it.
func (c *askedContext) AfterFunc(f func()) (stop func() bool) {
	c.see()
	id := len(c.hooks)
	c.hooks = append(c.hooks, f)
	if c.early {
		c.over()
	}
	return func() bool {
		c.see()
		waits := c.hooks[id] != nil
		c.hooks[id] = nil
		return waits
	}
}

func (c *askedContext) over() {
	if c.err == nil {
		c.err = context.Canceled
		close(c.done)
	}
}

// end ends the context, and returns when all registered functions have returned. Package
// context runs them in goroutines, which the synctest bubble waits for.
func (c *askedContext) end(t *testing.T) {
	t.Helper()
	c.over()
	for id, f := range c.hooks {
		if f != nil {
			c.hooks[id] = nil
			synctest.Test(t, func(*testing.T) { f() })
		}
	}
}

func (c *askedContext) see() {
	if locked(c.lease) {
		c.wrong("a context is asked with the lease locked")
	}
}

// locked reports whether the lock of l is held, by its one bit. Only one goroutine runs at a
// time, so a held lock is held by the caller of the context.
func locked(l *leaderlease.Lease) bool {
	mu := reflect.ValueOf(l).Elem().FieldByName("mu").FieldByName("Mutex").FieldByName("mu")
	return mu.FieldByName("state").Int()&1 != 0
}
