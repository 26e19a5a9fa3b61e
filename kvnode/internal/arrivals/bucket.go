package arrivals

import "time"

// bucket holds tokens. It is kept as the instant at which it is full again, since
// the hall was opened; the zero value is full.
type bucket time.Duration

// depth is for how long tokens that are not taken are saved up.
const depth = 2 * time.Second

// price is how long it takes for one token to come.
type price time.Duration

func priceOf(perSecond float64) price { return price(float64(time.Second) / perSecond) }

// empty reports whether no token is left.
func (b bucket) empty(now time.Duration, p price) bool {
	return max(time.Duration(b), now)+time.Duration(p)-now > depth
}

// take takes a token that is there.
func (b *bucket) take(now time.Duration, p price) {
	*b = bucket(max(time.Duration(*b), now) + time.Duration(p))
}

// put gives a token back.
func (b *bucket) put(p price) { *b -= bucket(p) }
