package transport

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := pair(t)
		settled()
		send(a, heartbeat(1, 2, 1), heartbeat(1, 2, 1), appendOf(1, 2, 1, nil), heartbeat(1, 9, 1))
		synctest.Wait()
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(NewCollector(a.Transport))
		if problems, err := testutil.GatherAndLint(registry); len(problems) > 0 || err != nil {
			t.Errorf("GatherAndLint() = %v, %v, want none", problems, err)
		}
		err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP kvnode_transport_sent_messages_total Messages written to the peer.
# TYPE kvnode_transport_sent_messages_total counter
kvnode_transport_sent_messages_total{peer="2",stream="bulk"} 1
kvnode_transport_sent_messages_total{peer="2",stream="control"} 2
kvnode_transport_sent_messages_total{peer="2",stream="snapshot"} 0
# HELP kvnode_transport_unaddressed_messages_total Messages to members that are not peers.
# TYPE kvnode_transport_unaddressed_messages_total counter
kvnode_transport_unaddressed_messages_total 1
`), "kvnode_transport_sent_messages_total", "kvnode_transport_unaddressed_messages_total")
		if err != nil {
			t.Error(err)
		}
		wantEtcds(t, registry, a)
	})
}

// wantEtcds checks that etcd's metrics add up all streams and count each pong.
func wantEtcds(t *testing.T, registry *prometheus.Registry, a *fakeNode) {
	t.Helper()
	time.Sleep(2 * time.Second) // two pings
	synctest.Wait()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	s := a.Peers()[0]
	want := map[string]uint64{
		"etcd_network_peer_sent_bytes_total{To=2}":       s.Streams[0].SentBytes + s.Streams[1].SentBytes + s.Streams[2].SentBytes,
		"etcd_network_peer_received_bytes_total{From=2}": s.Streams[0].ReceivedBytes + s.Streams[1].ReceivedBytes + s.Streams[2].ReceivedBytes,
		"etcd_network_peer_sent_failures_total{To=2}":    s.Lost,
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) != 1 {
				continue
			}
			name := fmt.Sprintf("%s{%s=%s}", f.GetName(), m.GetLabel()[0].GetName(), m.GetLabel()[0].GetValue())
			if n, ok := want[name]; ok && m.GetCounter().GetValue() == float64(n) {
				delete(want, name)
			}
			if name == "etcd_network_peer_round_trip_time_seconds{To=2}" && m.GetHistogram().GetSampleCount() == 0 {
				t.Errorf("%s has counted no answers", name)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("the page has not %v", want)
	}
}
