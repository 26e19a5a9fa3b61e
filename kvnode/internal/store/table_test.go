package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

func checkTable(t interface{ Fatalf(string, ...any) }, x *table, want map[string]*chain, keys int) {
	for i := range keys {
		key := fmt.Sprint(i)
		if got := x.find([]byte(key)); got != want[key] {
			t.Fatalf("find(%s) = %v, want %v", key, got, want[key])
		}
	}
}

func TestTableIsAMap(t *testing.T) {
	if size := unsafe.Sizeof(bucket{}); size != 64 {
		t.Errorf("a bucket takes %d bytes, want a cache line", size)
	}
	rapid.Check(t, func(t *rapid.T) {
		x, want := newTable(), map[string]*chain{}
		const keys = 30_000 // about 30 per shard
		n := rapid.IntRange(1, keys).Draw(t, "keys")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range rapid.IntRange(0, 4*n).Draw(t, "steps") {
			key := fmt.Sprint(random.IntN(n))
			if c := want[key]; c != nil {
				x.remove(c)
				delete(want, key)
				continue
			}
			c := newChain([]byte(key))
			x.add(c)
			want[key] = c
		}
		checkTable(t, x, want, n)
		total := 0
		for i := range x.shards {
			total += x.shards[i].n
		}
		if total != len(want) {
			t.Fatalf("the table counts %d chains, want %d", total, len(want))
		}
	})
}

// Keys that come and go do not lengthen look-ups for ever.
func TestTableForgetsWhatPassed(t *testing.T) {
	x := newTable()
	p := &x.shards[0]
	var chains []*chain // all of one shard
	for i := 0; len(chains) < 500; i++ {
		c := newChain(fmt.Append(nil, i))
		if of, _, _ := x.hash(c.key); of == p {
			chains = append(chains, c)
		}
	}
	const kept, adds = 30, 50_000
	trails := 0
	for i := range adds {
		x.add(chains[i%len(chains)])
		if i >= kept {
			x.remove(chains[(i-kept)%len(chains)])
		}
		if p.overflowed > len(*p.buckets.Load())/2 { // the next addition rebuilds the shard
			trails++
		}
	}
	if buckets := len(*p.buckets.Load()); trails > adds/10 || buckets > 16 {
		t.Errorf("after %d of %d additions most of %d buckets were passed, with %d chains", trails, adds, buckets, p.n)
	}
}

// Readers do not see new buckets before they are complete. A race would rarely show this, so the
// test calls refill.
func TestAPartIsSeenOnceItIsFilled(t *testing.T) {
	x := newTable()
	for i := range 20_000 {
		x.add(newChain(fmt.Append(nil, i)))
	}
	p, _, _ := x.hash([]byte("1"))
	seen := p.buckets.Load()
	filled := x.refill(p, *seen, 2*len(*seen))
	if p.buckets.Load() != seen {
		t.Error("readers see what is being filled")
	}
	p.buckets.Store(&filled)
	for i := range 20_000 {
		if x.find(fmt.Append(nil, i)) == nil {
			t.Errorf("find(%d) = nil in what was filled", i)
		}
	}
}

// A key that is present all the time is always found, while other keys come and go and shards grow.
func TestTableIsReadWhileItIsWritten(t *testing.T) {
	x := newTable()
	const kept = 1000
	for i := range kept {
		x.add(newChain(fmt.Append(nil, i)))
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for i := 0; ; i = (i + 1) % kept {
				if key := fmt.Append(nil, i); x.find(key) == nil {
					t.Errorf("find(%s) = nil", key)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for round := range 5 {
		var chains []*chain
		for i := range 8000 * (round + 1) {
			c := newChain(fmt.Appendf(nil, "other%d", i))
			x.add(c)
			chains = append(chains, c)
		}
		for _, c := range chains {
			x.remove(c)
		}
	}
	close(stop)
	wg.Wait()
}
