package redis_test

import (
	"fmt"
	"hash/fnv"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is a command, or a MULTI, of one client.
type operation struct {
	kind string // get, set, incr, write, read or swap
	key  string // of get and set
	// value is what set, write and swap write, unique in the history. old is what swap expects.
	value, old string
	// reply is as client.receive returns it, or unknown.
	reply string
}

// unknown is the reply to a write that may or may not take effect.
const unknown = "unknown"

// world is what the keys hold: two strings and a counter.
type world struct {
	a, b string
	n    int
}

// apply returns Redis' reply to an operation, and the state after it.
func (w world) apply(o *operation) (string, world) {
	text := func(s string) string {
		if s == "" {
			return "nil"
		}
		return s
	}
	count := func() string {
		if w.n == 0 {
			return "nil"
		}
		return strconv.Itoa(w.n)
	}
	switch o.kind {
	case "get":
		return map[string]string{"a": text(w.a), "b": text(w.b), "n": count()}[o.key], w
	case "read": // MULTI, MGET a b, GET n, EXEC
		return fmt.Sprintf("[[%s %s] %s]", text(w.a), text(w.b), count()), w
	case "set":
		if o.key == "a" {
			w.a = o.value
		} else {
			w.b = o.value
		}
		return "OK", w
	case "incr":
		w.n++
		return strconv.Itoa(w.n), w
	case "write": // MULTI, SET a, SET b, INCR n, EXEC
		w.a, w.b, w.n = o.value, o.value, w.n+1
		return fmt.Sprintf("[OK OK %d]", w.n), w
	case "swap": // WATCH a, GET a, MULTI, SET a, EXEC
		if o.reply == "nil" || w.a != o.old { // a change before the GET aborts it as well
			return "nil", w
		}
		w.a = o.value
		return "[OK]", w
	}
	return "?", w
}

// redisModel has a world as its state. An operation with an unknown outcome has no end, so it may come last, where no
// other operation sees its effect.
var redisModel = porcupine.Model{
	Init: func() any { return world{} },
	Step: func(state, input, _ any) (bool, any) {
		w, isWorld := state.(world)
		o, isOperation := input.(*operation)
		if !isWorld || !isOperation {
			return false, state
		}
		reply, next := w.apply(o)
		return o.reply == unknown || o.reply == reply, next
	},
	Hash: func(state any) uint64 {
		w, isWorld := state.(world)
		if !isWorld {
			return 0
		}
		sum := fnv.New64a()
		_, _ = fmt.Fprint(sum, w) // never fails
		return sum.Sum64()
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// history records the operations of a round, which has keys of its own.
type history struct {
	t        *testing.T
	round    string
	gateways []string
	began    time.Time
	stop     chan struct{}
	running  sync.WaitGroup
	users    int

	answered atomic.Int64 // operations, and of them
	written  atomic.Int64 // those that write

	mu  sync.Mutex
	all []porcupine.Operation
}

// conclude ends operations with an unknown outcome when their values were first seen. A SET of a value that was never
// seen is left out: no other operation depends on it.
func (h *history) conclude() (all []porcupine.Operation, open int) {
	for _, op := range h.all {
		o, is := op.Input.(*operation)
		if !is || o.reply != unknown {
			all = append(all, op)
			continue
		}
		for _, other := range h.all {
			if saw, is := other.Input.(*operation); is && strings.Contains(saw.reply, o.value) {
				op.Return = min(op.Return, other.Return)
			}
		}
		if op.Return == math.MaxInt64 && (o.kind == "set" || o.kind == "swap") {
			continue
		}
		open++
		all = append(all, op)
	}
	return all, open
}

// judge returns whether there is an order of the operations that explains all replies.
func (h *history) judge() porcupine.CheckResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, open := h.conclude()
	result, info := porcupine.CheckOperationsVerbose(redisModel, all, patience)
	h.t.Logf("%s: %d operations, %d of which may have taken effect: %s", h.round, len(h.all), open, result)
	if result != porcupine.Ok {
		name := filepath.Join(h.t.ArtifactDir(), "history.html")
		if err := porcupine.VisualizePath(redisModel, info, name); err != nil {
			h.t.Error(err)
		}
	}
	return result
}

// user is a connection that runs operations, one at a time.
type user struct {
	*client

	id, count int
}

// work runs 300 operations at most. After an unknown outcome it reads, and ends soon: such an operation may come
// anywhere behind, so with many of them the search for an order does not end.
func (u *user) work(h *history) {
	readOnly := false
	for left := 300; left > 0; left-- {
		select {
		case <-h.stop:
			return
		default:
		}
		u.count++
		o := &operation{value: fmt.Sprintf("<%d.%d>", u.id, u.count), key: []string{"a", "b", "n"}[u.count%3]}
		o.kind = []string{"get", "write", "read", "incr", "get", "set", "swap", "read", "incr"}[(u.count+u.id)%9]
		if readOnly {
			o.kind = []string{"get", "read"}[u.count%2]
		}
		if o.kind == "set" && o.key == "n" {
			o.key = "b"
		}
		call := time.Since(h.began)
		reply := u.operate(h.round, o)
		done := time.Since(h.began).Nanoseconds()
		switch {
		case strings.HasPrefix(reply, "-UNKNOWN"):
			o.reply, done, readOnly, left = unknown, math.MaxInt64, true, 30
		case strings.HasPrefix(reply, "-ERR nothing was written"):
			continue
		case strings.HasPrefix(reply, "-") || reply == "":
			h.t.Errorf("%s of %s: %q", o.kind, h.round, reply)
			return
		default:
			o.reply = reply
			h.answered.Add(1)
			if o.kind != "get" && o.kind != "read" {
				h.written.Add(1)
			}
		}
		h.mu.Lock()
		h.all = append(h.all, porcupine.Operation{ClientId: u.id, Input: o, Call: call.Nanoseconds(), Return: done})
		h.mu.Unlock()
	}
}

// operate returns the reply to the last command of an operation.
func (u *user) operate(round string, o *operation) string {
	a, b, n := round+":a", round+":b", round+":n"
	switch o.kind {
	case "get":
		return u.try("GET", round+":"+o.key)
	case "set":
		return u.try("SET", round+":"+o.key, o.value)
	case "incr":
		return u.try("INCR", n)
	case "write":
		return u.several([]string{"MULTI"}, []string{"SET", a, o.value}, []string{"SET", b, o.value}, []string{"INCR", n}, []string{"EXEC"})
	case "read":
		return u.several([]string{"MULTI"}, []string{"MGET", a, b}, []string{"GET", n}, []string{"EXEC"})
	}
	if got := u.try("WATCH", a); got != "OK" {
		return got
	}
	got := u.try("GET", a)
	if strings.HasPrefix(got, "-") {
		u.try("UNWATCH")
		return got
	}
	if o.old = got; got == "nil" {
		o.old = ""
	}
	return u.several([]string{"MULTI"}, []string{"SET", a, o.value}, []string{"EXEC"})
}

// several sends commands at once and returns the last reply.
func (u *user) several(commands ...[]string) (reply string) {
	var text strings.Builder
	for _, args := range commands {
		text.WriteString(encode(args...))
	}
	if _, err := u.c.Write([]byte(text.String())); err != nil {
		return err.Error()
	}
	for range commands {
		var err error
		if reply, err = u.receive(); err != nil {
			return err.Error()
		}
	}
	return reply
}

// start starts a connection of each gateway, which runs operations until the end of the round.
func (h *history) start() {
	for _, addr := range h.gateways {
		u := &user{client: dial(h.t, addr), id: h.users, count: h.users}
		h.users++
		h.running.Go(func() { u.work(h) })
	}
}

// inLoad runs two connections of each gateway while f runs, and returns the history.
func inLoad(t *testing.T, round string, gateways []string, f func(h *history)) *history {
	t.Helper()
	h := &history{t: t, round: round, gateways: gateways, began: time.Now(), stop: make(chan struct{})}
	defer h.running.Wait()
	defer close(h.stop)
	h.start()
	h.start()
	f(h)
	return h
}

// until waits for a count to grow by n.
func until(t *testing.T, what string, count *atomic.Int64, n int64) {
	t.Helper()
	began, first := time.Now(), count.Load()
	for count.Load() < first+n {
		if time.Since(began) > patience {
			t.Fatalf("%s: %d of %d in %v", what, count.Load()-first, n, patience)
		}
		time.Sleep(time.Millisecond)
	}
}
