package watch

import "testing"

func TestStatsOfStreams(t *testing.T) {
	r := testRig(t)
	want := func(when string, want Stats) {
		t.Helper()
		if got := r.hub.Stats(); got != want {
			t.Errorf("Stats() %s = %+v, want %+v", when, got, want)
		}
	}
	s, idle := r.hub.NewStream(Limits{}), r.hub.NewStream(Limits{})
	r.put("a", "0")
	if _, _, err := s.Watch(key("a")); err != nil {
		t.Fatal(err)
	}
	late := key("a")
	late.Start = 2
	if _, _, err := s.Watch(late); err != nil {
		t.Fatal(err)
	}
	want("with one that begins in the past", Stats{Streams: 2, Watchers: 2, Behind: 1})
	r.put("a", "1")
	r.pass()
	want("before anybody looks", Stats{Streams: 2, Watchers: 2, Behind: 1, Pending: 1})
	for more := true; more; {
		_, more = s.Next()
	}
	want("when all is read", Stats{Streams: 2, Watchers: 2, Sent: 3})
	idle.Close()
	s.Close()
	s.Close()
	want("at the end", Stats{Sent: 3})
}
