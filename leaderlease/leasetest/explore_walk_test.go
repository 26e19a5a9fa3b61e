package leasetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// walk searches every sequence of a menu's steps, shortest first. A Lease and a RawNode
// cannot be copied, so each step plays its script from the beginning.
type walk struct {
	t    *testing.T
	m    *menu
	pin  pinned
	head []*datadriven.TestData
	menu []*datadriven.TestData
	seen map[key]struct{}
	walked
}

// walked is what a search has found.
type walked struct {
	states, plays int
	// depth is the length up to which all scripts were played. complete means that no longer
	// ones were wanted.
	depth    int
	complete bool
	took     time.Duration
	goals    uint64
	// bad describes the violation that path leads to.
	bad  string
	path []uint8
}

func newWalk(t *testing.T, m *menu) *walk {
	t.Helper()
	w := &walk{t: t, m: m, pin: pin(t), seen: make(map[key]struct{})}
	w.head, w.menu = parse(t, m.begin), parse(t, m.steps)
	return w
}

// search plays scripts of up to depth steps, at most plays of them.
func (w *walk) search(depth, plays int) {
	begun := time.Now()
	defer func() { w.took = time.Since(begun) }()
	level := [][]uint8{{}}
	if _, fresh := w.try(nil); !fresh || w.bad != "" {
		return
	}
	for w.depth < depth && len(level) > 0 {
		var next [][]uint8
		for _, path := range level {
			for step := range w.menu {
				if w.plays >= plays {
					return
				}
				longer, fresh := w.try(append(slices.Clip(path), uint8(step)))
				if w.bad != "" {
					return
				}
				if fresh {
					next = append(next, longer)
				}
			}
		}
		level = next
		w.depth++
	}
	w.complete = true
}

// try plays path and reports whether it leads to a new state.
func (w *walk) try(path []uint8) (longer []uint8, fresh bool) {
	w.t.Helper()
	w.plays++
	p, bad := w.play(path)
	if bad != "" {
		w.bad, w.path = bad, path
		return path, false
	}
	p.survey()
	w.goals |= p.goals
	k := p.key()
	if _, ok := w.seen[k]; ok {
		return path, false
	}
	w.seen[k] = struct{}{}
	w.states++
	return path, true
}

// play plays path from the beginning. A panic is a violation.
func (w *walk) play(path []uint8) (p *play, bad string) {
	w.t.Helper()
	p = &play{t: w.t, script: script{pin: w.pin.rewind}}
	p.doubtful = w.m.doubtful
	defer func() {
		if r := recover(); r != nil {
			bad = fmt.Sprint("panic: ", r)
		}
		p.stopWork()
	}()
	for _, d := range w.head {
		p.do(d)
	}
	for _, step := range path {
		p.do(w.menu[step])
	}
	return p, p.bad
}

// script returns path as a file for RunScript, with its output and a final status of every
// node.
func (w *walk) script(path []uint8) string {
	w.t.Helper()
	ds := slices.Clone(w.head)
	for _, step := range path {
		ds = append(ds, w.menu[step])
	}
	var b strings.Builder
	p := &play{t: w.t, script: script{pin: w.pin.rewind}}
	for _, d := range append(ds, parse(w.t, []string{"status"})...) {
		fmt.Fprintf(&b, "%s\n----\n%s\n", d.FullCmd(), p.attempt(d))
	}
	return b.String()
}

// attempt plays d and returns what it prints, or how it panics.
func (p *play) attempt(d *datadriven.TestData) (out string) {
	p.t.Helper()
	defer func() {
		if r := recover(); r != nil {
			out = fmt.Sprintf("panic: %v\n", r)
		}
	}()
	return p.run(p.t, d)
}
