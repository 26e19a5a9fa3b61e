package heap

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// every is how often the keeper looks. A load of some seconds makes much garbage: less often,
	// and what the collector may keep of it is decided when it is over.
	every = time.Second
	// looks is after how many looks it decides whether to give back: what was allocated
	// meanwhile is what tells a process at rest.
	looks = 5
	// pause is the least time from one giving back to the next. It takes two collections,
	// which go on beside everything else, and pages that are wanted again are zeroed anew.
	pause = time.Minute
	// longest is what pause grows to, by doubling, while what was given back is soon garbage
	// again. Shorter: a server with much data and a few requests does little but collect.
	// Longer: what a load has left is kept for as long.
	longest = 16 * time.Minute
	// least is the least that is worth it, or a quarter of what is alive. More: an empty member
	// keeps as much for nothing. Less: not much is left to give back.
	least = 2 << 20
	// calm is the part of it that may have been allocated since the last decision. A
	// process that allocates more would soon take the pages back.
	calm = 1. / 8
	// large is the live heap from which on the collector lets garbage grow to half of it
	// instead of all. Garbage is then what a node with much data has most of. Half costs a
	// load a tenth more of the processors; of less data it would save next to nothing.
	large = 128 << 20
)

// sample is the heap at one time, in bytes, less floor.
type sample struct {
	live      uint64 // after the newest collection
	held      uint64 // what the system provides for it
	allocated uint64 // since the process began
}

// gain is what is held and not alive.
func (s sample) gain() uint64 { return s.held - min(s.live, s.held) }

// keeper decides. It has no clock.
type keeper struct {
	memory    uint64 // what the process may use; 0: nobody says
	allocated uint64
	gave      time.Time
	rest      time.Duration // from then on, until more is given back
	// stays is what giving back has left: parts of pages, between what is alive.
	stays uint64
}

// limit returns the memory at which the collector is to work more: what leaves room for
// the rest of the machine, but never so little that the collector alone would keep the
// processors busy, and the heartbeats waiting.
func (k *keeper) limit(s sample) int64 {
	if k.memory == 0 {
		return math.MaxInt64
	}
	return int64(max(k.memory/10*8, s.live/10*13) + floor)
}

// percent returns how much garbage there may be, in hundredths of what is alive.
func (k *keeper) percent(s sample) int {
	if s.live < large {
		return 100
	}
	return 50
}

// giveBack reports whether it is time to give back what is not alive.
func (k *keeper) giveBack(now time.Time, s sample) bool {
	fresh := s.allocated - k.allocated
	k.allocated = s.allocated
	k.stays = min(k.stays, s.gain())
	gain := s.gain() - k.stays
	if gain < max(least, s.live/4) || float64(fresh) > float64(gain)*calm || now.Sub(k.gave) < k.rest {
		return false
	}
	if now.Sub(k.gave) >= 4*k.rest {
		k.rest = 0
	}
	k.rest = min(max(2*k.rest, pause), longest)
	k.gave = now
	return true
}

// system is what the keeper looks at, and what it tells.
type system struct {
	look       func() sample
	giveBack   func(ctx context.Context, s sample)
	setLimit   func(bytes int64) (was int64)
	setPercent func(percent int) (was int)
}

// process is the system of this process.
func process() system { return system{look, giveBack, debug.SetMemoryLimit, debug.SetGCPercent} }

// keep looks until ctx ends.
func keep(ctx context.Context, memory uint64, of system) {
	k := keeper{memory: memory}
	set := of.setLimit(-1)
	defer of.setLimit(set)
	defer of.setPercent(of.setPercent(100))
	tick := time.NewTicker(every)
	defer tick.Stop()
	percent, limit := 0, int64(0)
	for i := 0; ; i++ {
		s := of.look()
		// Either stops the world, so nothing is said twice.
		if l := k.limit(s); l != limit {
			limit = l
			of.setLimit(l)
		}
		if p := k.percent(s); p != percent {
			percent = p
			of.setPercent(p)
		}
		if i%looks == 0 && k.giveBack(time.Now(), s) {
			of.giveBack(ctx, s)
			k.stays = of.look().gain()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// giveBack gives back what is not alive.
func giveBack(ctx context.Context, s sample) {
	// The first collection lets go of what pools have, the second frees it.
	runtime.GC()
	runtime.GC()
	// A collection begins early while memory is given back that is little beside the heap.
	release(ctx, max(least, s.live/16), free, take)
}

// look takes a sample.
func look() sample {
	read := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(read)
	at := func(i int) uint64 { return read[i].Value.Uint64() }
	live, held := at(0), at(1)+at(2)+at(3)
	return sample{live: live - min(floor, live), held: held - min(floor, held), allocated: at(4)}
}
