package heap

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// step is how much is given back at a time. The runtime lets nothing else have the
// processor meanwhile, nor a collection begin: a GiB takes a tenth of a second. More: all
// goroutines wait, and the heartbeats among them, if there is one processor, or if a
// collection is to begin. Less: it takes longer.
const step = 16 << 20

// release has take give back what is free but for keep bytes, a step at a time, until ctx
// ends or no more of it is gone.
func release(ctx context.Context, keep uint64, free func() uint64, take func(n uint64)) {
	for now, before := free(), uint64(0); now > keep && ctx.Err() == nil && (before == 0 || now < before); {
		take(min(now-keep, step))
		before, now = now, free()
	}
}

// free returns what the system provides and the heap has no use for.
func free() uint64 {
	read := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(read)
	return read[0].Value.Uint64()
}

// take gives n bytes back. debug.FreeOSMemory knows all or nothing. But who allocates a
// large piece first gives back what is beyond the memory limit.
func take(n uint64) {
	read := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(read)
	set := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(int64(read[0].Value.Uint64() - read[1].Value.Uint64() - n))
	runtime.KeepAlive(make([]byte, 128<<10))
	debug.SetMemoryLimit(set)
	time.Sleep(time.Millisecond) // the others' turn
}
