package transport

import (
	"strings"
	"testing"
	"testing/synctest"

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
# HELP kvnode_transport_unaddressed_messages_total Messages to members that are no peers.
# TYPE kvnode_transport_unaddressed_messages_total counter
kvnode_transport_unaddressed_messages_total 1
`), "kvnode_transport_sent_messages_total", "kvnode_transport_unaddressed_messages_total")
		if err != nil {
			t.Error(err)
		}
	})
}
