package kvnode

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// seedOp is one request of a client. A key is never deleted, so its versions count its
// writes.
type seedOp struct {
	client     int
	kind       string // put, cas, lease or round
	member     string
	key, value string
	expect     int64 // of a cas: the version that it replaces
	wrote      bool
	version    int64 // what it wrote, or saw
	err        error // of a write: it may have taken effect, unless nothing was done

	begin, end int           // in the order of all beginnings and ends
	from, to   time.Duration // in virtual time; only printed
}

func (o *seedOp) String() string {
	return fmt.Sprintf("%v-%v client %d %s %s at %s: version %d %s, %v", o.from, o.to, o.client, o.kind, o.key, o.member, o.version, o.value, o.err)
}

func (o *seedOp) writes() bool { return o.kind == "put" || o.kind == "cas" }

// history is what all clients saw.
type history struct {
	mu   sync.Mutex
	tick int
	ops  []*seedOp
}

func (h *history) now() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	return h.tick
}

func (h *history) add(o *seedOp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// print writes all in an order that does not depend on the order within one instant.
func (h *history) print(w io.Writer) {
	slices.SortStableFunc(h.ops, func(a, b *seedOp) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.client, b.client)) })
	for _, o := range h.ops {
		_, _ = fmt.Fprintln(w, o)
	}
}

// tally counts what happened, over all seeds.
type tally map[string]int

func (a tally) count(log string, ops []*seedOp) {
	a["schedules"]++
	for line := range strings.Lines(log) {
		a["fault: "+strings.Fields(line)[1]]++
	}
	for _, o := range ops {
		a["request: "+o.kind]++
		if o.err != nil {
			a["failed: "+o.kind]++
		}
	}
}

// nothingDone: a write that is refused so must not take effect.
func nothingDone(err error) bool {
	return errors.Is(err, ErrNoLeader) || errors.Is(err, ErrDiskFull) || errors.Is(err, ErrTooManyRequests)
}

// judge holds the history against the writes of a store when all is over. Versions
// order everything that was done to a key, so a history is linearizable if no request
// that ended before another began is later in that order.
func (h *history) judge(t *testing.T, s *store.Store) {
	t.Helper()
	for k := range seedKeys {
		key := fmt.Sprintf("k%d", k)
		values := []string{""}
		_, err := s.History(1, 1<<30, func(w store.Write) bool {
			if string(w.KV.GetKey()) == key {
				values = append(values, string(w.KV.GetValue()))
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		judgeOnce(t, key, values)
		h.judgeKey(t, key, values)
	}
}

// judgeOnce: each write has a value of its own, so one that is there twice was done twice.
func judgeOnce(t *testing.T, key string, values []string) {
	t.Helper()
	for i, value := range values {
		if at := slices.Index(values, value); at < i {
			t.Errorf("done twice: %s is %s in versions %d and %d", key, value, at, i)
		}
	}
}

// judgeKey judges what was done to a key whose versions had values.
func (h *history) judgeKey(t *testing.T, key string, values []string) {
	t.Helper()
	var done []*seedOp
	for _, o := range h.ops {
		if o.key == key && h.took(t, o, values) {
			done = append(done, o)
		}
	}
	for _, a := range done {
		for _, b := range done {
			if a.end < b.begin && (a.version > b.version || a.version == b.version && b.wrote) {
				t.Errorf("not linearizable: first %v\n\tthen %v", a, b)
			}
		}
	}
	if done == nil {
		t.Errorf("nothing was done to %s", key)
	}
}

// took reports whether o took place, and where it is among the versions. A write of
// which its client knows nothing has no end.
func (h *history) took(t *testing.T, o *seedOp, values []string) bool {
	t.Helper()
	if o.err != nil {
		at := slices.Index(values, o.value)
		if !o.writes() || at <= 0 {
			return false
		}
		if nothingDone(o.err) {
			t.Errorf("refused, and done: %v", o)
		}
		o.wrote, o.version, o.end = true, int64(at), h.tick+1
		return true
	}
	shown := o.wrote || !o.writes() // a swap that failed shows a version only
	if o.version >= int64(len(values)) || shown && values[o.version] != o.value {
		t.Errorf("lost: %v; there are %d versions", o, len(values)-1)
		return false
	}
	o.judgeSwap(t)
	return true
}

func (o *seedOp) judgeSwap(t *testing.T) {
	t.Helper()
	if o.kind != "cas" {
		return
	}
	if o.wrote && o.version != o.expect+1 || !o.wrote && o.version == o.expect {
		t.Errorf("a swap of version %d: %v", o.expect, o)
	}
}
