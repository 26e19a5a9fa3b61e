package store

import (
	"slices"
	"sort"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Write is what one write made of a key. It is shared and must not be changed.
type Write struct {
	KV *Version
	// Prev is the version before. It is nil if there was none, or if it was
	// compacted.
	Prev *Version
	// Deleted says that the key is gone; KV has key and mod revision only.
	Deleted bool
}

// History calls visit with the writes of revision from and later, in order, and
// returns the revision that it did not get to. It ends with a whole revision:
// the newest, or the one in which visit returned false, or the one that the
// limit of writes fell into. It fails with rpctypes.ErrGRPCCompacted if from is
// compacted; what visit was given then may have holes. It takes no lock.
func (s *Store) History(from int64, limit int, visit func(Write) bool) (next int64, err error) {
	return s.state.Load().writes(from, limit, visit)
}

func (st *state) writes(from int64, limit int, visit func(Write) bool) (next int64, err error) {
	rev := st.revision.Load()
	next = max(from, rev+1)
	more := true
	var last int64
	st.history.scan(from, rev, func(v *Version) bool {
		if v.mod != last && (!more || limit <= 0) {
			next = v.mod
			return false
		}
		last = v.mod
		limit--
		more = visit(st.write(v)) && more
		return true
	})
	// Last, since what was forgotten before is missing above.
	if from < st.compacted.Load() {
		return 0, rpctypes.ErrGRPCCompacted
	}
	return next, nil
}

func (st *state) write(v *Version) Write {
	w := Write{KV: v, Deleted: v.tombstone()}
	prev := v.prev.Load().live()
	// It may still be there, or may be gone any moment.
	if prev != nil && st.compacted.Load() < v.mod {
		w.Prev = prev
	}
	return w
}

// pageSize is how many versions a page of the history has. More: a compaction copies more
// of the page in which it ends, and a page that is hardly used costs more memory (8 bytes
// a version). Fewer: the list of pages, which is copied when it grows, is longer.
const pageSize = 512

// history lists the versions that were not compacted, in the order of writes.
// The goroutine that applies writes; anybody reads.
type history struct {
	// pages are ordered; all but the last are full, or were when they began to be
	// forgotten. A list that is published is not changed, but for appending.
	pages atomic.Pointer[[]*page]
}

// page is written by the goroutine that applies while others read it: a place is filled
// before n counts it, and is not touched again.
type page struct {
	versions [pageSize]*Version
	n        atomic.Int32 // how many there are
}

func newHistory() *history {
	h := &history{}
	h.pages.Store(&[]*page{})
	return h
}

func (p *page) list() []*Version { return p.versions[:p.n.Load()] }

// add appends a version. A reader that has loaded the list of pages before may not see it,
// and need not: the version's revision is published after it.
func (h *history) add(v *Version) {
	pages := *h.pages.Load()
	if len(pages) == 0 || pages[len(pages)-1].n.Load() == pageSize {
		pages = append(pages, &page{})
		h.pages.Store(&pages)
	}
	p := pages[len(pages)-1]
	n := p.n.Load()
	p.versions[n] = v
	p.n.Store(n + 1)
}

// scan calls visit with the versions of revisions from through to, until it
// returns false.
func (h *history) scan(from, to int64, visit func(*Version) bool) {
	pages := *h.pages.Load()
	for _, p := range pages[firstPage(pages, from):] {
		for _, v := range p.list() {
			switch {
			case v.mod < from:
			case v.mod > to || !visit(v):
				return
			}
		}
	}
}

// size returns how many versions there are of revisions from through to, or, if some page
// was cut by forget, up to a page more.
func (h *history) size(from, to int64) int {
	if from > to {
		return 0
	}
	pages := *h.pages.Load()
	return position(pages, to+1) - position(pages, from)
}

// place returns where the first version of revision rev or later is, or would be.
func position(pages []*page, rev int64) int {
	i := firstPage(pages, rev)
	if i == len(pages) {
		return i * pageSize
	}
	list := pages[i].list()
	return i*pageSize + sort.Search(len(list), func(n int) bool { return list[n].mod >= rev })
}

// firstPage returns the place of the first page that may hold revision from. An empty page,
// which only the last one can be, holds whatever comes next.
func firstPage(pages []*page, from int64) int {
	return sort.Search(len(pages), func(i int) bool {
		list := pages[i].list()
		return len(list) == 0 || list[len(list)-1].mod >= from
	})
}

// forget drops what is below revision rev. Pages are not emptied, since somebody
// may be reading them: the first that is kept is replaced.
func (h *history) truncate(rev int64) {
	pages := *h.pages.Load()
	kept := slices.Clone(pages[firstPage(pages, rev):])
	if len(kept) > 0 {
		p := &page{}
		for _, v := range kept[0].list() {
			if v.mod >= rev {
				n := p.n.Load()
				p.versions[n] = v
				p.n.Store(n + 1)
			}
		}
		kept[0] = p
	}
	h.pages.Store(&kept)
}
