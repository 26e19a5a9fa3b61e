package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leaderlease/go/leaderlease"
)

// reading is one group's lease at the moment of a scrape.
type reading struct {
	stats  leaderlease.Stats
	status leaderlease.Info
	peers  [numPeerStates]int
}

// family is one metric.
type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// values are those of the second label, or noValues. value returns the metric for values[i].
	values []string
	value  func(r *reading, i int) float64
}

func newFamily(kind prometheus.ValueType, name, help, label string, values []string, value func(*reading, int) float64) family {
	labels := []string{"group"}
	if label != "" {
		labels = append(labels, label)
	}
	return family{
		desc: prometheus.NewDesc("leaderlease_"+name, help, labels, nil),
		kind: kind, values: values, value: value,
	}
}

var noValues = []string{""}

// counter is a family without a second label.
func counter(name, help string, field func(*leaderlease.Stats) uint64) family {
	return newFamily(prometheus.CounterValue, name, help, "", noValues,
		func(r *reading, _ int) float64 { return float64(field(&r.stats)) })
}

// counters has a second label.
func counters(name, help, label string, values []string, field func(*leaderlease.Stats) []uint64) family {
	return newFamily(prometheus.CounterValue, name, help, label, values,
		func(r *reading, i int) float64 { return float64(field(&r.stats)[i]) })
}

func gauge(name, help string, value func(*leaderlease.Info) float64) family {
	return newFamily(prometheus.GaugeValue, name, help, "", noValues,
		func(r *reading, _ int) float64 { return value(&r.status) })
}

func seconds(name, help string, value func(*leaderlease.Info) time.Duration) family {
	return gauge(name, help, func(s *leaderlease.Info) float64 { return value(s).Seconds() })
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// names returns the values of a label in the order of the array that it
// indexes.
func names[T ~uint8](n int, name func(T) string) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = name(T(i))
	}
	return values
}

var (
	reasons = names(len(leaderlease.Stats{}.Losses), leaderlease.Status.String)
	paths   = names(len(leaderlease.Stats{}.Reads), leaderlease.Path.String)
	kinds   = []string{"vote_in", "pre_vote_in", "timeout_now_in", "vote_resp_in", "vote_out", "pre_vote_out", "vote_resp_out", "tick", "self"}
)

// never reports whether a value of a label cannot occur: no lease is lost because it is valid, and no read
// is served by no path.
func never(value string) bool {
	return value == leaderlease.StatusValid.String() || value == leaderlease.StatusNone.String()
}

// families are all exported metrics.
var families = slices.Concat(counterFamilies, gaugeFamilies)

var counterFamilies = []family{
	counter("renewals_total", "Grants that moved the end of the lease forward.",
		func(s *leaderlease.Stats) uint64 { return s.Renewals }),
	counter("expirations_total", "Times that a held lease ran out: no renewal came in time.",
		func(s *leaderlease.Stats) uint64 {
			return s.Losses[leaderlease.StatusExpired] + s.Losses[leaderlease.StatusMargin]
		}),
	counters("losses_total", "Times that a held lease was lost, by the reason for which reads were refused from then on.",
		"reason", reasons, func(s *leaderlease.Stats) []uint64 { return s.Losses[:] }),
	counters("refusals_total", "Lease checks that failed, by reason; Read then falls back to a quorum round.",
		"reason", reasons, func(s *leaderlease.Stats) []uint64 { return s.Refused[:] }),
	counters("reads_total", "Reads served, by path. TryRead is not counted.",
		"path", paths, func(s *leaderlease.Stats) []uint64 { return s.Reads[:] }),
	counter("rounds_total", "ReadIndex rounds asked of raft, with repetitions.",
		func(s *leaderlease.Stats) uint64 { return s.Rounds }),
	counter("answered_reads_total", "ReadIndex requests of followers that the library answered itself.",
		func(s *leaderlease.Stats) uint64 { return s.Answered }),
	counters("withheld_total", "Messages and ticks that were kept back, mostly by a promise, by kind.",
		"kind", kinds, func(s *leaderlease.Stats) []uint64 {
			w := &s.Withheld
			return []uint64{w.VoteIn, w.PreVoteIn, w.TimeoutNowIn, w.VoteRespIn, w.VoteOut, w.PreVoteOut, w.VoteRespOut, w.Tick, w.Self}
		}),
	counter("probes_total", "Heartbeats that left with a probe.",
		func(s *leaderlease.Stats) uint64 { return s.Probes }),
	counter("promises_total", "Probes that this node answered with a promise.",
		func(s *leaderlease.Stats) uint64 { return s.Promises }),
	counter("grants_total", "Heartbeat responses that left with a grant.",
		func(s *leaderlease.Stats) uint64 { return s.Grants }),
	counter("refused_probes_total", "Probes that got no promise; Stats.RefusedProbes lists the reasons.",
		func(s *leaderlease.Stats) uint64 { return s.RefusedProbes }),
	counter("malformed_fields_total", "Invalid lease fields in messages.",
		func(s *leaderlease.Stats) uint64 { return s.Malformed }),
	counter("absent_fields_total", "Heartbeats and responses without a lease field.",
		func(s *leaderlease.Stats) uint64 { return s.Absent }),
	counter("transfers_total", "Releases: times that this node gave its lease up to transfer leadership.",
		func(s *leaderlease.Stats) uint64 { return s.Transfers }),
	counter("clock_faults_total", "Clock readings that failed or went backwards.",
		func(s *leaderlease.Stats) uint64 { return s.ClockFaults }),
	counter("disruptions_total", "Times that the clock reported a migration or a restore of the machine.",
		func(s *leaderlease.Stats) uint64 { return s.Disruptions }),
	counter("obituaries_total", "Processes of leaders that were reported dead.",
		func(s *leaderlease.Stats) uint64 { return s.Deaths }),
	counter("voided_promises_total", "Promises voided because the process that relied on them was dead.",
		func(s *leaderlease.Stats) uint64 { return s.VoidedPromises }),
}

var gaugeFamilies = []family{
	gauge("held", "1 if a lease read would be served now, else 0.",
		func(s *leaderlease.Info) float64 { return truth(s.Valid()) }),
	gauge("term", "Newest term that this node knows.",
		func(s *leaderlease.Info) float64 { return float64(s.Term) }),
	gauge("commit_index", "Commit index that raft has published.",
		func(s *leaderlease.Info) float64 { return float64(s.Commit) }),
	gauge("applied_index", "Index that the state machine has applied.",
		func(s *leaderlease.Info) float64 { return float64(s.Applied) }),
	gauge("waiting_reads", "Reads that wait for a round or for the state machine.",
		func(s *leaderlease.Info) float64 { return float64(s.Waiting) }),
	gauge("misused", "1 if leases are off because the embedding broke a rule, else 0.",
		func(s *leaderlease.Info) float64 { return truth(s.Err != nil) }),
	seconds("remaining_seconds", "For how long lease reads are still served; 0 if they are not.",
		func(s *leaderlease.Info) time.Duration { return s.Remaining }),
	seconds("end_seconds", "Time until the promises of a quorum end: the remaining time and the margin.",
		func(s *leaderlease.Info) time.Duration { return s.EndsIn }),
	seconds("promise_remaining_seconds", "For how long this node is still bound by a promise.",
		func(s *leaderlease.Info) time.Duration { return s.Promise.Remaining }),
	seconds("restart_hold_seconds", "Rest of the restart hold, in which this node neither votes nor campaigns.",
		func(s *leaderlease.Info) time.Duration { return s.Promise.Hold }),
	seconds("margin_seconds", "Configured MaxClockSkew: reads stop that long before the lease ends.",
		func(s *leaderlease.Info) time.Duration { return s.MaxClockSkew }),
	seconds("duration_seconds", "Configured Duration of a promise.",
		func(s *leaderlease.Info) time.Duration { return s.Duration }),
	seconds("max_promise_seconds", "Configured MaxPromise: the longest promise that this node makes.",
		func(s *leaderlease.Info) time.Duration { return s.MaxPromise }),
	seconds("saved_promise_seconds", "For how long this node would be bound by a restart: the longest promise that is saved.",
		func(s *leaderlease.Info) time.Duration { return s.Promise.Saved }),
	seconds("clock_read_seconds", "Cost of one reading of the lease clock, measured at start.",
		func(s *leaderlease.Info) time.Duration { return s.Clock.Cost }),
	gauge("clock_counts_suspend", "1 if the lease clock is known to count suspended time (assumption A2), else 0.",
		func(s *leaderlease.Info) float64 { return truth(s.Clock.CountsSuspend) }),
	newFamily(prometheus.GaugeValue, "peers", "Other voters as the leader sees them, by state; 0 on other nodes.",
		"state", peerStateNames[:], func(r *reading, i int) float64 { return float64(r.peers[i]) }),
}

// peerState is the most serious condition of a voter as the leader sees it.
type peerState uint8

const (
	// peerSuspectClock: its clock runs outside the configured bound.
	peerSuspectClock peerState = iota
	// peerSilent: it has granted nothing for a whole Duration.
	peerSilent
	// peerOtherDuration: its promises have another Duration.
	peerOtherDuration
	// peerGranting: nothing is wrong.
	peerGranting

	numPeerStates = int(peerGranting) + 1
)

var peerStateNames = [numPeerStates]string{"suspect_clock", "silent", "other_duration", "granting"}

func stateOf(p *leaderlease.PeerInfo, s *leaderlease.Info) peerState {
	switch {
	case p.ClockSuspect:
		return peerSuspectClock
	case p.GrantAge < 0 || p.GrantAge > s.Duration:
		return peerSilent
	case p.Duration != s.Duration:
		return peerOtherDuration
	default:
		return peerGranting
	}
}

// countPeers counts the other voters by state.
func countPeers(s *leaderlease.Info) (counts [numPeerStates]int) {
	for i := range s.Peers {
		counts[stateOf(&s.Peers[i], s)]++
	}
	return counts
}
