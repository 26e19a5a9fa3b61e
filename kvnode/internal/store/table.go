package store

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// table is a hash table of chains. One goroutine at a time writes; any goroutine reads,
// without a lock, and finds what was added before it began to look.
//
// A look-up costs three cache lines: the bucket, the chain, which has its key beside it, and
// the version. A map of any kind has keys of its own, or a piece of memory for each entry.
//
// It is made of parts that grow one by one: who writes waits for a part only, some tenths of
// a millisecond for a million keys.
type table struct {
	seed   maphash.Seed // immutable
	shards [1 << shardBits]shard
}

const (
	shardBits = 10
	// slots is how many chains a bucket has room for: what fits a cache line with their tags.
	slots = 7
	// grownAt is how many of the slots, of each bucket on average, are in use when a part
	// grows to the double. More: many are beyond the bucket that is theirs.
	grownAt = 5
)

// part is a table of its own for the keys whose hashes begin alike.
type shard struct {
	buckets atomic.Pointer[[]bucket] // a power of two of them; replaced when they are too few
	// The writer's: how many chains there are, and how many buckets that a look-up has to go
	// on from. Removals leave these as they are, so a part in which keys come and go is
	// made anew now and then.
	n, overflowed int
}

// bucket is a cache line. A chain that finds no room in it is in one of the next.
type bucket struct {
	// tags has a byte of the hash for each slot that is in use, 0 for one that is not; and
	// in the highest byte a 1 if a look-up has to go on to the next bucket.
	tags   atomic.Uint64
	chains [slots]atomic.Pointer[chain]
}

const (
	tagOnes     = 0x0001_0101_0101_0101
	overflowBit = 1 << 56
)

func newTable() *table { return &table{seed: maphash.MakeSeed()} }

// hash returns which part, which bucket of it, before it is cut to their number, and which
// tag a key has. A tag is not 0.
func (t *table) hash(key []byte) (p *shard, home, tag uint64) {
	h := maphash.Bytes(t.seed, key)
	at, home, tag := split(h)
	return &t.shards[at], home, tag
}

func split(h uint64) (part, home, tag uint64) { return h >> (64 - shardBits), h >> 8, h&0xff | 1 }

// matches has the lowest bit of each byte set whose tag is tag. It may have further ones
// above the first: who uses it compares keys.
func matches(tags, tag uint64) uint64 {
	x := tags ^ tag*tagOnes
	return (x - tagOnes) &^ x & (tagOnes << 7) >> 7
}

// find returns the chain of key, nil if there is none. It allocates nothing.
//
// In nearly all look-ups it is the first chain with the tag, so that one is tried with as
// little code as can be: a look-up waits for memory most of the time, and the fewer
// instructions it has, the more of them a processor has under way at once.
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
	for range buckets { // each at most once
		b := &buckets[at&uint64(len(buckets)-1)]
		tags := b.tags.Load()
		for m := matches(tags, tag); m != 0; m &= m - 1 {
			// Its slot may have been given to another meanwhile.
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

// add adds a chain whose key has none.
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

// grow makes the buckets of a part anew, twice as many unless hardly half of that is in
// use. Readers see them once they have everything.
func (t *table) grow(p *shard, old []bucket) []bucket {
	size := max(len(old), 1)
	if 2*p.n >= grownAt*size {
		size *= 2
	}
	buckets := t.refill(p, old, size)
	p.buckets.Store(&buckets)
	return buckets
}

// refill returns so many buckets with the chains of old, which readers still see.
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

// insert puts a chain into the first bucket from its own on that has room, which there is.
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

// remove removes a chain. Those that passed its bucket stay where they are.
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
