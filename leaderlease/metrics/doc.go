// Package metrics exports leases to Prometheus.
//
//	leases := metrics.New()
//	leases.Add("orders", lease)
//	registry.MustRegister(leases)
//
// One Collector serves any number of groups; each has the label group. A scrape reads the Stats and
// the Info of each lease once. It changes no counter, and holds the lease's lock, which reads under
// lease do not take, only while a few fields are copied.
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
//   - held is 0 on every member of a group, or reads by another path than lease go up: the leader gets
//     no quorum of grants; losses_total and refusals_total have the reason.
//   - peers in a state other than granting: the group is a failure away from having no lease. Lease.Info
//     names the peer.
//   - clock_faults_total, peers{state="suspect_clock"}: an assumption about clocks is false
//     (docs/clocks.md).
//   - misused is 1, or malformed_fields_total goes up: a bug in the embedding, or a peer that does not
//     run this library.
package metrics
