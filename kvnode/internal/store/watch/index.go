package watch

import (
	"bytes"
	"slices"
	"strings"
)

// index finds the watchers of a key. A watcher is in at most one index.
//
// Most ranges are prefixes. They are found with one hash look-up for each prefix length in use.
// Other ranges are compared one by one.
type index struct {
	keys     map[string]*bucket
	prefixes map[string]*bucket
	lengths  []prefixLength // ascending
	spans    map[span]*bucket
	list     []*bucket // the values of spans
	size     int
}

// bucket holds the watchers of the same key, prefix or range.
type bucket struct {
	watchers []*watcher
	span     span
	pos      int // in index.list
}

type span struct{ from, end string } // empty end: no bound

type prefixLength struct{ length, buckets int }

func newIndex() *index {
	return &index{keys: map[string]*bucket{}, prefixes: map[string]*bucket{}, spans: map[span]*bucket{}}
}

// prefixEnd returns the end of the range of all keys with prefix p, nil for no bound.
func prefixEnd(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] < 0xff {
			end := slices.Clone(p[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

func isFrom(end []byte) bool { return len(end) == 1 && end[0] == 0 }

func (w *watcher) span() span {
	if isFrom(w.End) {
		return span{from: string(w.Key)}
	}
	return span{string(w.Key), string(w.End)}
}

func (w *watcher) isPrefix() bool { return bytes.Equal(prefixEnd(w.Key), w.End) }

func (x *index) add(w *watcher) {
	key := string(w.Key)
	switch {
	case len(w.End) == 0:
		w.home = bucketOf(x.keys, key)
	case w.isPrefix():
		w.home = bucketOf(x.prefixes, key)
		if len(w.home.watchers) == 0 {
			x.countLength(len(key), 1)
		}
	default:
		w.home = bucketOf(x.spans, w.span())
		if len(w.home.watchers) == 0 {
			w.home.span, w.home.pos = w.span(), len(x.list)
			x.list = append(x.list, w.home)
		}
	}
	w.pos = len(w.home.watchers)
	w.home.watchers = append(w.home.watchers, w)
	x.size++
}

func bucketOf[K comparable](m map[K]*bucket, key K) *bucket {
	b := m[key]
	if b == nil {
		b = &bucket{}
		m[key] = b
	}
	return b
}

func (x *index) remove(w *watcher) {
	b := w.home
	last := len(b.watchers) - 1
	b.watchers[w.pos] = b.watchers[last]
	b.watchers[w.pos].pos = w.pos
	b.watchers[last] = nil
	b.watchers = b.watchers[:last]
	w.home = nil
	x.size--
	if last > 0 {
		return
	}
	switch {
	case len(w.End) == 0:
		delete(x.keys, string(w.Key))
	case w.isPrefix():
		delete(x.prefixes, string(w.Key))
		x.countLength(len(w.Key), -1)
	default:
		delete(x.spans, b.span)
		last := len(x.list) - 1
		x.list[b.pos] = x.list[last]
		x.list[b.pos].pos = b.pos
		x.list[last] = nil
		x.list = x.list[:last]
	}
}

func (x *index) countLength(n, change int) {
	i, ok := slices.BinarySearchFunc(x.lengths, n, func(l prefixLength, n int) int { return l.length - n })
	if !ok {
		x.lengths = slices.Insert(x.lengths, i, prefixLength{length: n})
	}
	x.lengths[i].buckets += change
	if x.lengths[i].buckets == 0 {
		x.lengths = slices.Delete(x.lengths, i, i+1)
	}
}

// match calls visit with the watchers of key, in no particular order. visit must not change the
// index.
func (x *index) match(key []byte, visit func(*watcher)) {
	if b := x.keys[string(key)]; b != nil {
		b.each(visit)
	}
	for _, l := range x.lengths {
		if l.length > len(key) {
			break
		}
		if b := x.prefixes[string(key[:l.length])]; b != nil {
			b.each(visit)
		}
	}
	for _, b := range x.list {
		if b.span.has(key) {
			b.each(visit)
		}
	}
}

func (s span) has(key []byte) bool {
	return strings.Compare(string(key), s.from) >= 0 && (s.end == "" || string(key) < s.end)
}

// each calls visit with all watchers. visit may remove its argument.
func (x *index) each(visit func(*watcher)) {
	for _, m := range []map[string]*bucket{x.keys, x.prefixes} {
		for _, b := range m {
			b.each(visit)
		}
	}
	for _, b := range slices.Backward(x.list) {
		b.each(visit)
	}
}

// each iterates backward, because remove moves the last watcher to the free place.
func (b *bucket) each(visit func(*watcher)) {
	for i := len(b.watchers) - 1; i >= 0; i-- {
		visit(b.watchers[i])
	}
}
