package kvnode

import (
	"context"
	"fmt"
	"sync"
)

// farewells are the members that have refused this one because it was removed.
// Whoever does has applied the removal, and its log has it that the change is
// committed. Once every majority of those who are left has one that knows, and tells
// the others in an election (leaderlease.Lease.LearnCommit), nobody needs this member. Before, they may be
// waiting for its vote.
type farewells struct {
	*parts
	begun sync.Once // leave
	mu    struct {
		sync.Mutex
		from map[uint64]bool
	}
}

// dismissed notes that peer has refused this member because it was removed.
func (f *farewells) dismissed(peer uint64) {
	f.mu.Lock()
	if f.mu.from == nil {
		f.mu.from = make(map[uint64]bool)
	}
	f.mu.from[peer] = true
	f.mu.Unlock()
	f.begun.Do(func() { f.life.Go(f.leave) })
}

// areEnough reports whether this member was removed and is not needed any more. If it has
// not applied its removal, those who are left are all that it knows but itself.
func (f *farewells) areEnough() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	told, voters := 0, 0
	for id, m := range f.store.Members().ByID {
		if m.Learner || id == f.leadership.self {
			continue
		}
		voters++
		if f.mu.from[id] {
			told++
		}
	}
	return inEveryMajority(told, voters)
}

// awaitRelease waits until this member is released. It looks at each tick.
func (f *farewells) awaitRelease(ctx context.Context) error {
	for !f.areEnough() {
		if err := f.life.SleepContext(ctx, f.cfg.TickInterval); err != nil {
			return err
		}
	}
	return nil
}

// leave stops a member that was removed, once it is released and clients have had
// time to hear of it. There is no bound: without it the others may have no leader.
func (f *farewells) leave() {
	for f.awaitRelease(context.Background()) == nil {
		if !f.life.Sleep(f.cfg.ElectionTimeout) {
			return
		}
		if f.areEnough() { // it may have applied its removal meanwhile, and be needed
			f.life.Fail(fmt.Errorf("%w; if it is to come back: %s", ErrRemoved, f.cfg.beginAnew(f.ID())))
			return
		}
	}
}
