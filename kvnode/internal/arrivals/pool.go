package arrivals

import (
	"hash/maphash"
	"time"
)

// Bounds are those of the guests that are strangers, or of those that are known.
type Bounds struct {
	// Guests is how many may wait.
	Guests int
	// PerHost and Total are how many handshakes in a second may lead nowhere, of
	// one host and of all.
	PerHost, Total float64
}

// pool is where guests of one kind wait.
type pool struct {
	// share is what one host keeps of limit if places run short.
	limit, share   int
	perHost, total price

	waiting []*Guest
	held    map[string]int // how many wait, by owner
	// Hosts whose owners hash alike share their tokens, so that nobody can make
	// this grow. The seed keeps them from choosing with whom.
	seed   maphash.Seed
	tokens [1024]bucket
	all    bucket
}

func newPool(b Bounds) *pool {
	return &pool{
		limit: b.Guests, share: max(1, b.Guests/8), perHost: priceOf(b.PerHost), total: priceOf(b.Total),
		held: make(map[string]int), seed: maphash.MakeSeed(),
	}
}

func (p *pool) tokensOf(owner string) *bucket {
	return &p.tokens[maphash.String(p.seed, owner)%uint64(len(p.tokens))]
}

// dry reports whether the owner would get no token.
func (p *pool) dry(now time.Duration, owner string) bool {
	return p.all.empty(now, p.total) || p.tokensOf(owner).empty(now, p.perHost)
}

func (p *pool) pay(now time.Duration, owner string) {
	p.all.take(now, p.total)
	p.tokensOf(owner).take(now, p.perHost)
}

func (p *pool) refund(owner string) {
	p.all.put(p.total)
	p.tokensOf(owner).put(p.perHost)
}

func (p *pool) add(g *Guest) {
	g.place = len(p.waiting)
	p.waiting = append(p.waiting, g)
	p.held[g.owner]++
}

func (p *pool) remove(g *Guest) {
	last := len(p.waiting) - 1
	p.waiting[last].place = g.place
	p.waiting[g.place] = p.waiting[last]
	p.waiting[last] = nil
	p.waiting = p.waiting[:last]
	if p.held[g.owner]--; p.held[g.owner] == 0 {
		delete(p.held, g.owner)
	}
}

// victim returns the guest whose place a newcomer gets, nil if nobody waits: the
// one that has shown no sign of life for the longest, among all, or of the owner
// with the most guests if that one has more than its share.
func (p *pool) victim() (v *Guest) {
	most, n := p.heaviest()
	for _, g := range p.waiting {
		if (n <= p.share || g.owner == most) && (v == nil || g.alive < v.alive) {
			v = g
		}
	}
	return v
}

// heaviest returns the owner with the most guests, and how many.
func (p *pool) heaviest() (most string, n int) {
	for owner, held := range p.held {
		if held > n {
			most, n = owner, held
		}
	}
	return most, n
}
