package store

import (
	"slices"
	"sort"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Write is one write of a key. It is shared and must not be changed.
type Write struct {
	KV *Version
	// Prev is the live version before, nil if there was none or it is compacted.
	Prev *Version
	// Deleted is set if the key was deleted. KV then has a key and a mod revision only.
	Deleted bool
}

// History calls visit with each write at revision first or later, in order, and returns the next
// revision to read. It always ends after a complete revision: the newest one, the one in which
// visit returned false, or the one in which the limit of writes was reached. If first is compacted,
// it fails with rpctypes.ErrGRPCCompacted, and the visited writes may have holes. It takes no lock.
func (s *Store) History(first int64, limit int, visit func(Write) bool) (next int64, err error) {
	st := s.state.Load()
	rev := st.revision.Load()
	next = max(first, rev+1)
	more := true
	var last int64
	st.history.scan(first, rev, func(v *Version) bool {
		if v.mod != last && (!more || limit <= 0) {
			next = v.mod
			return false
		}
		last = v.mod
		limit--
		more = visit(st.writeOf(v)) && more
		return true
	})
	// Checked last, since writes that were dropped during the scan are missing.
	if first < st.compacted.Load() {
		return 0, rpctypes.ErrGRPCCompacted
	}
	return next, nil
}

func (st *state) writeOf(v *Version) Write {
	w := Write{KV: v, Deleted: v.tombstone()}
	prev := v.prev.Load().live()
	// If v itself is at or below the compacted revision, its previous version may be freed at any time.
	if prev != nil && st.compacted.Load() < v.mod {
		w.Prev = prev
	}
	return w
}

// pageSize is how many versions a page of the history holds. A compaction copies up to one page,
// and a nearly empty page wastes 8 bytes for each version that it lacks. With smaller pages the list of pages, which
// is copied as it grows, is longer.
const pageSize = 512

// history lists the versions since the last compaction in the order of writes. The applying
// goroutine writes, and readers take no lock.
type history struct {
	// pages is in order. All pages but the last are full, or were until truncate replaced them.
	// A published list only grows at its end.
	pages atomic.Pointer[[]*page]
}

// page is filled by the applying goroutine. A slot is written before n includes it, and never
// again.
type page struct {
	versions [pageSize]*Version
	n        atomic.Int32 // used slots
}

func newHistory() *history {
	h := &history{}
	h.pages.Store(&[]*page{})
	return h
}

func (p *page) list() []*Version { return p.versions[:p.n.Load()] }

// add appends a version. A reader with an older list of pages may miss it. It does not need it,
// because the revision is published later.
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

// scan calls visit with the versions of revisions first to last, until visit returns false.
func (h *history) scan(first, last int64, visit func(*Version) bool) {
	pages := *h.pages.Load()
	for _, p := range pages[firstPage(pages, first):] {
		for _, v := range p.list() {
			switch {
			case v.mod < first:
			case v.mod > last || !visit(v):
				return
			}
		}
	}
}

// size returns the number of versions of revisions first to last. It may return up to a page more
// after a truncate.
func (h *history) size(first, last int64) int {
	if first > last {
		return 0
	}
	pages := *h.pages.Load()
	return position(pages, last+1) - position(pages, first)
}

// position returns the position of the first version of revision rev or later.
func position(pages []*page, rev int64) int {
	i := min(firstPage(pages, rev), len(pages)-1)
	if i < 0 {
		return 0
	}
	list := pages[i].list()
	return i*pageSize + sort.Search(len(list), func(n int) bool { return list[n].mod >= rev })
}

// firstPage returns the index of the first page that may hold revision rev. An empty page, which
// can only be the last one, may hold any later revision.
func firstPage(pages []*page, rev int64) int {
	return sort.Search(len(pages), func(i int) bool {
		list := pages[i].list()
		return len(list) == 0 || list[len(list)-1].mod >= rev
	})
}

// truncate drops revisions below rev. Readers may use the old pages, so the first remaining page is
// copied and not changed.
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
