package store

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// table is a hash table of chains. One goroutine at a time writes. Readers take no lock, and find
// every chain that was added before they started.
//
// A look-up touches three cache lines: the bucket, the chain with its key, and the version. A Go
// map would add its own copy of the key, or an allocation for each entry.
//
// The table consists of shards that grow one by one. A write waits for the growth of one shard,
// some tenths of a millisecond with a million keys.
type table struct {
	seed   maphash.Seed // immutable
	shards [1 << shardBits]shard
}

const (
	shardBits = 10
	// slots is how many chains a bucket has room for. With their tags they fill a cache line.
	slots = 7
	// grownAt is the average number of used slots per bucket at which a shard doubles. With a
	// higher value, more chains overflow to the next bucket.
	grownAt = 5
)

// shard is a table for the keys that share the first bits of their hashes.
type shard struct {
	buckets atomic.Pointer[[]bucket] // a power of two; replaced when it grows
	// For the writer: the number of chains, and of buckets with overflowBit. Removals do not
	// clear that bit, so a shard is rebuilt now and then if its keys come and go.
	n, overflowed int
}

// bucket is a cache line. A chain that does not fit goes to the next bucket.
type bucket struct {
	// tags has one byte of the hash for each used slot, 0 for an unused one. The highest byte
	// is 1 (overflowBit) if a look-up must continue in the next bucket.
	tags   atomic.Uint64
	chains [slots]atomic.Pointer[chain]
}

const (
	tagOnes     = 0x0001_0101_0101_0101
	overflowBit = 1 << 56
)

func newTable() *table { return &table{seed: maphash.MakeSeed()} }

// hash returns the shard, bucket (before reduction to the number of buckets) and tag of a key. A
// tag is never 0.
func (t *table) hash(key []byte) (p *shard, home, tag uint64) {
	h := maphash.Bytes(t.seed, key)
	at, home, tag := split(h)
	return &t.shards[at], home, tag
}

func split(h uint64) (part, home, tag uint64) { return h >> (64 - shardBits), h >> 8, h&0xff | 1 }

// matches sets the lowest bit of each byte that equals tag. It may set further bits above the first
// one, so the caller compares keys.
func matches(tags, tag uint64) uint64 {
	x := tags ^ tag*tagOnes
	return (x - tagOnes) &^ x & (tagOnes << 7) >> 7
}

// find returns the chain of key, nil if there is none. It allocates nothing.
//
// Nearly always the first chain with the tag is the right one. find tries it with as few
// instructions as possible: look-ups mostly wait for memory, and shorter ones overlap better.
func (t *table) find(key []byte) *chain {
	part, home, tag := split(maphash.Bytes(t.seed, key))
	list := t.shards[part].buckets.Load()
	if list == nil {
		return nil
	}
	buckets := *list
	b := &buckets[home&uint64(len(buckets)-1)]
	if m := matches(b.tags.Load(), tag); m != 0 {
		if c := b.chains[bits.TrailingZeros64(m)/8].Load(); c.is(key) {
			return c
		}
	}
	return search(buckets, key, home, tag)
}

// search is find for all chains with the tag.
func search(buckets []bucket, key []byte, at, tag uint64) *chain {
	for range buckets { // each bucket at most once
		b := &buckets[at&uint64(len(buckets)-1)]
		tags := b.tags.Load()
		for m := matches(tags, tag); m != 0; m &= m - 1 {
			// The slot may have been reused meanwhile.
			if c := b.chains[bits.TrailingZeros64(m)/8].Load(); c.is(key) {
				return c
			}
		}
		if tags&overflowBit == 0 {
			return nil
		}
		at++
	}
	return nil
}

// add adds a chain. The table must not contain its key.
func (t *table) add(c *chain) {
	p, home, tag := t.hash(c.key)
	var buckets []bucket
	if list := p.buckets.Load(); list != nil {
		buckets = *list
	}
	if p.n >= grownAt*len(buckets) || p.overflowed > len(buckets)/2 {
		buckets = t.grow(p, buckets)
	}
	p.insert(buckets, c, home, tag)
	p.n++
}

// grow rebuilds the buckets of a shard. It doubles their number if the shard has at least half of the chains at
// which it grows; otherwise only the overflow bits needed the rebuild. It publishes the buckets when they are
// complete.
func (t *table) grow(p *shard, old []bucket) []bucket {
	size := max(len(old), 1)
	if 2*p.n >= grownAt*size {
		size *= 2
	}
	buckets := t.refill(p, old, size)
	p.buckets.Store(&buckets)
	return buckets
}

// refill copies the chains of old, which readers still use, to new buckets.
func (t *table) refill(p *shard, old []bucket, size int) []bucket {
	buckets := make([]bucket, size)
	p.overflowed = 0
	for i := range old {
		for s := range slots {
			if c := old[i].chains[s].Load(); c != nil {
				_, home, tag := t.hash(c.key)
				p.insert(buckets, c, home, tag)
			}
		}
	}
	return buckets
}

// insert puts a chain into the first bucket with a free slot, starting at its own. There always is
// one.
func (p *shard) insert(buckets []bucket, c *chain, at, tag uint64) {
	for ; ; at++ {
		b := &buckets[at&uint64(len(buckets)-1)]
		tags := b.tags.Load()
		for s := range slots {
			if tags>>(8*s)&0xff == 0 {
				b.chains[s].Store(c)
				b.tags.Store(tags | tag<<(8*s))
				return
			}
		}
		if tags&overflowBit == 0 {
			p.overflowed++
			b.tags.Store(tags | overflowBit)
		}
	}
}

// remove removes a chain. Chains that overflowed its bucket stay where they are.
func (t *table) remove(c *chain) {
	p, at, _ := t.hash(c.key)
	list := p.buckets.Load()
	if list == nil {
		return
	}
	for range *list {
		b := &(*list)[at&uint64(len(*list)-1)]
		for s := range slots {
			if b.chains[s].Load() == c {
				b.tags.Store(b.tags.Load() &^ (0xff << (8 * s)))
				b.chains[s].Store(nil)
				p.n--
				return
			}
		}
		at++
	}
}
