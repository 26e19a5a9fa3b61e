package server

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/leaderlease/go/leaderlease/detector"
)

// failedOver is what has happened to leaders, as metrics.
type failedOver detector.Stats

func (failedOver) Describe(descs chan<- *prometheus.Desc) { descs <- failOvers; descs <- lastOver }

func (f failedOver) Collect(out chan<- prometheus.Metric) {
	collectFailOvers(out, (*detector.Stats)(&f))
}

func TestMetricsSayHowALeaderWasReplaced(t *testing.T) {
	const ms = time.Millisecond
	s := detector.Stats{Last: detector.FailOver{Way: detector.Hint, Hint: 2 * ms, Promise: 240 * ms, Election: 8 * ms, Commit: 3 * ms}}
	s.FailOvers[detector.Hint], s.FailOvers[detector.Transfer] = 1, 2
	want := `# HELP kvnode_last_fail_over_seconds How long each part of the last one took: detected, from the leader's last sign of life on; promise, that bound this member then; election; commit, of the next leader's first entry.
# TYPE kvnode_last_fail_over_seconds gauge
kvnode_last_fail_over_seconds{by="hint",part="commit"} 0.003
kvnode_last_fail_over_seconds{by="hint",part="detected"} 0.002
kvnode_last_fail_over_seconds{by="hint",part="election"} 0.008
kvnode_last_fail_over_seconds{by="hint",part="promise"} 0.24
# HELP kvnode_leader_fail_overs_total Leaders that were replaced by another, by what it began with: hint, pre-vote, silence (for an election timeout), learnt-silence (longer than usual), obituary (a guardian's), transfer, resignation (told by who was asked).
# TYPE kvnode_leader_fail_overs_total counter
kvnode_leader_fail_overs_total{by="hint"} 1
kvnode_leader_fail_overs_total{by="learnt-silence"} 0
kvnode_leader_fail_overs_total{by="obituary"} 0
kvnode_leader_fail_overs_total{by="pre-vote"} 0
kvnode_leader_fail_overs_total{by="resignation"} 0
kvnode_leader_fail_overs_total{by="silence"} 0
kvnode_leader_fail_overs_total{by="transfer"} 2
`
	if err := testutil.CollectAndCompare(failedOver(s), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(failedOver{}); n != detector.NumWays {
		t.Errorf("%d metrics before the first fail-over, want only the counters", n)
	}
}
