package watch

import "testing"

// Progress is answered when all watchers have got everything up to the revision
// of the request, and after that.
func TestProgressWaitsForAllWatchers(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream(Limits{BatchEvents: 1})
	s.RequestProgress()
	wantText(t, "nobody watches", drain(s))

	r.watch(s, key("a"))
	r.put("a", "1")
	s.RequestProgress()
	wantText(t, "before the hub has come to it", drain(s))
	r.pass()
	wantText(t, "once it has", drain(s), "0@2: a=1/2", "-1@2:")

	r.puts("b", 2)
	r.watch(s, from(key("b"), 1))
	s.RequestProgress()
	r.pass()
	if got, ok := s.Next(); !ok || got.ID == All {
		t.Fatalf("Next() = %v, %v; a watcher is behind", got, ok)
	}
	wantText(t, "when the other has caught up", drain(s), "1@4: b=1/4", "-1@4:")

	r.watch(s, from(key("b"), 6))
	s.RequestProgress()
	wantText(t, "one starts later", drain(s))
	r.puts("a", 2)
	r.pass()
	wantText(t, "and later no more", drain(s), "0@5: a=0/5", "0@6: a=1/6")
	s.RequestProgress()
	wantText(t, "it has started", drain(s), "-1@6:")
}

// Requests that wait are answered together.
func TestProgressIsAnsweredOnce(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream(Limits{})
	r.watch(s, key("a"))
	for range 3 {
		r.put("b", "1")
		s.RequestProgress()
		wantText(t, "the hub is late", drain(s))
	}
	r.pass()
	wantText(t, "all of them", drain(s), "-1@4:")
}

// An answer that is on its way when a watcher is added is not for that one: its
// client would take it for the watcher's own progress, and lose what it is to
// get from the past.
func TestProgressIsNotToldToThoseThatCameLater(t *testing.T) {
	for _, turn := range []string{"the history's", "the queue's"} {
		r := testRig(t)
		s := r.hub.NewStream(Limits{})
		r.watch(s, key("b"))
		r.puts("a", 3)
		r.put("b", "1")
		r.pass()
		s.RequestProgress()
		if got, ok := s.Next(); !ok || got.ID == All {
			t.Fatalf("Next() = %v, %v, want an event", got, ok)
		}
		r.watch(s, from(key("a"), 1))
		s.scan = turn == "the queue's"
		wantText(t, "a watcher was added, and it is the turn of "+turn, drain(s), "1@5: a=0/2 a=1/3 a=2/4", "-1@5:")
	}
}

// A tick tells those that asked for it, have got everything and heard nothing
// since the last.
func TestTickTellsThoseThatHeardNothing(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream(Limits{})
	notify := func(req Request) Request {
		req.Progress = true
		return req
	}
	r.watch(s, notify(key("a")))
	r.watch(s, key("b"))
	r.watch(s, notify(from(key("c"), 9)))
	r.watch(s, notify(from(key("d"), 2)))
	s.Tick()
	wantText(t, "at once", drain(s), "0@1:")
	r.puts("x", 2)
	r.pass()
	s.Tick()
	wantText(t, "one has come to its start", sorted(drain(s)), "0@3:", "3@3:")
	r.put("a", "1")
	r.pass()
	wantText(t, "an event", drain(s), "0@4: a=1/4")
	s.Tick()
	wantText(t, "after an event", drain(s), "3@4:")
	s.Tick()
	wantText(t, "a tick later", sorted(drain(s)), "0@4:", "3@4:")
}

// Progress that comes right after an event is told of its own.
func TestProgressIsNotMergedWithEvents(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream(Limits{})
	req := key("a")
	req.Progress = true
	r.watch(s, req)
	r.put("a", "1")
	r.pass()
	s.Tick()
	wantText(t, "an event and a tick", drain(s), "0@2: a=1/2", "0@2:")
}

// A client that takes little and ticks that go on: what waits for it is one for each watcher,
// and what was told is told again later.
func TestProgressThatWaitsIsNotToldTwice(t *testing.T) {
	r := testRig(t)
	s := r.hub.NewStream(Limits{})
	req := key("a")
	req.Progress = true
	r.watch(s, req)
	r.watch(s, req)
	for range 3 {
		s.Tick()
	}
	wantText(t, "three ticks", sorted(drain(s)), "0@1:", "1@1:")
	s.Tick()
	wantText(t, "and one more", sorted(drain(s)), "0@1:", "1@1:")
}

func sorted(rs []Response) []Response {
	for i := range rs {
		for j := range i {
			if rs[i].ID < rs[j].ID {
				rs[i], rs[j] = rs[j], rs[i]
			}
		}
	}
	return rs
}
