package watch

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The index finds exactly the watchers of a key, after any additions and removals.
func TestIndexFindsTheWatchersOfAKey(t *testing.T) {
	genPart := rapid.StringOfN(rapid.SampledFrom([]rune{'a', 'b', 'c', 0xff}), 0, 4, -1)
	rapid.Check(t, func(t *rapid.T) {
		x := newIndex()
		var in []*watcher
		t.Repeat(map[string]func(*rapid.T){
			"add key":    func(t *rapid.T) { in = append(in, addTo(x, key(genPart.Draw(t, "key")))) },
			"add prefix": func(t *rapid.T) { in = append(in, addTo(x, prefix(genPart.Draw(t, "prefix")))) },
			"add range": func(t *rapid.T) {
				r := Request{Key: []byte(genPart.Draw(t, "from")), End: []byte(genPart.Draw(t, "end"))}
				if rapid.Bool().Draw(t, "open") {
					r.End = []byte{0}
				}
				in = append(in, addTo(x, r))
			},
			"remove": func(t *rapid.T) {
				if len(in) == 0 {
					t.Skip("empty")
				}
				i := rapid.IntRange(0, len(in)-1).Draw(t, "watcher")
				x.remove(in[i])
				in = slices.Delete(in, i, i+1)
			},
			"": func(t *rapid.T) {
				k := genPart.Draw(t, "looked up")
				want := map[*watcher]bool{}
				for _, w := range in {
					if (&watched{Request: w.Request}).covers([]byte(k)) {
						want[w] = true
					}
				}
				x.match([]byte(k), func(w *watcher) {
					if !want[w] {
						t.Fatalf("%+v was found for %q, or twice", w.Request, k)
					}
					delete(want, w)
				})
				if len(want) > 0 || x.size != len(in) {
					t.Fatalf("%d watchers of %q were not found; size %d, want %d", len(want), k, x.size, len(in))
				}
			},
		})
		n := 0
		x.each(func(w *watcher) {
			n++
			x.remove(w)
		})
		if n != len(in) || x.size != 0 || len(x.keys)+len(x.prefixes)+len(x.spans)+len(x.list)+len(x.lengths) != 0 {
			t.Fatalf("each() visited %d of %d, and left %+v", n, len(in), x)
		}
	})
}

func addTo(x *index, r Request) *watcher {
	w := &watcher{Request: r}
	x.add(w)
	return w
}
