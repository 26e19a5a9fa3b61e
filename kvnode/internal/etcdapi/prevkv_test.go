package etcdapi

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The version before an event is what a read one revision earlier would find, as in
// etcd: none once that revision is compacted, whatever is still kept. A deletion that is
// asked for it always has one, since it is of what is there.
func TestPrevKVOfWhatIsCompacted(t *testing.T) {
	for compacted, want := range map[int64]string{
		0: " PUT@2() PUT@3(1) DELETE@4(2) PUT@5() DELETE@6(3)",
		3: " PUT@3() DELETE@4(2) PUT@5() DELETE@6(3)",
		4: " DELETE@4() PUT@5() DELETE@6(3)",
		5: " PUT@5() DELETE@6(3)",
		6: " DELETE@6()",
	} {
		t.Run(fmt.Sprint(compacted), func(t *testing.T) {
			s := startServer(t, Config{})
			c := s.client(t)
			s.put(t, "a", "1")
			s.put(t, "a", "2")
			s.delete(t, "a")
			s.put(t, "a", "3")
			s.delete(t, "a")
			if compacted > 0 {
				s.compact(t, compacted)
			}
			r := <-c.Watch(t.Context(), "a", clientv3.WithRev(max(compacted, 1)), clientv3.WithPrevKV())
			var got strings.Builder
			for _, e := range r.Events {
				fmt.Fprintf(&got, " %v@%d(%s)", e.GetType(), e.GetKv().GetModRevision(), e.GetPrevKv().GetValue())
			}
			if got.String() != want {
				t.Errorf("events from %d on =%s, want%s", compacted, got.String(), want)
			}
		})
	}
	s := startServer(t, Config{})
	s.put(t, "b", "0")
	s.put(t, "b", "1")
	s.compact(t, 3)
	if r, err := s.client(t).Delete(t.Context(), "b", clientv3.WithPrevKV()); err != nil || len(r.PrevKvs) != 1 || string(r.PrevKvs[0].GetValue()) != "1" {
		t.Errorf("Delete(b) = %v, %v, want the version that a compaction has kept", r, err)
	}
}
