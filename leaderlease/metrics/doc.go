// Package metrics exports leases to Prometheus.
//
//	leases := metrics.New()
//	leases.Add("orders", lease)
//	registry.MustRegister(leases)
//
// One Collector serves any number of groups; each has the label group. A scrape reads the Stats and
// the Info of each lease once. It holds the lease's lock only while a few fields are copied, and reads
// under a valid lease do not take that lock.
//
// A group has 72 series. A process with thousands of groups may export those that matter, or a Source
// that sums several up.
//
// # Metrics
//
// The names begin with leaderlease_, and each metric has a help text: see counterFamilies and
// gaugeFamilies. Counters count since the lease was made; gauges are as of the scrape. The label reason
// is a leaderlease.Status, path a leaderlease.Path, and kind a field of leaderlease.Stats.Withheld. The
// label state of leaderlease_peers is granting, silent, suspect_clock or other_duration.
//
// # What to watch
//
//   - held is 0 on every member of a group, or reads by path read_index go up without calls of ReadIndex:
//     there is no valid lease. losses_total and refusals_total have the reason.
//   - peers in a state other than granting: more of them may cost the lease. Lease.Info names them.
//   - clock_faults_total, peers{state="suspect_clock"}: an assumption about clocks is false
//     (docs/clocks.md).
//   - misused is 1: a bug in the embedding.
//   - malformed_fields_total goes up: a peer runs an incompatible version, or messages are damaged.
package metrics
