// Package metrics exports leases to Prometheus.
//
//	leases := metrics.New()
//	leases.Add("orders", lease)
//	registry.MustRegister(leases)
//
// One Collector serves any number of groups; each has the label group. A scrape
// asks each lease once for its Stats and its Info. It writes to none of the
// counters, and holds the lease's lock, which reads under lease do not take, for
// as long as it takes to copy a few fields.
//
// A group has 72 series. A process with thousands of groups may export those
// that matter, or its own Source that sums several up.
//
// # Metrics
//
// All counters count since the lease was made or last reset. All gauges are as
// of the scrape.
//
//	leaderlease_renewals_total             grants that moved the end of the lease forward
//	leaderlease_expirations_total          times that a held lease ran out
//	leaderlease_losses_total               times that a held lease was lost, by reason
//	leaderlease_refusals_total             lease checks that failed, by reason
//	leaderlease_reads_total                reads served, by path: lease, joined, read_index, forwarded
//	leaderlease_rounds_total               ReadIndex rounds asked of raft
//	leaderlease_answered_reads_total       forwarded reads answered from the lease
//	leaderlease_withheld_total             messages and ticks that a promise kept back, by kind
//	leaderlease_probes_total               heartbeats that left with a probe
//	leaderlease_promises_total             probes answered with a promise
//	leaderlease_grants_total               heartbeat responses that left with a grant
//	leaderlease_refused_probes_total       probes that got no promise
//	leaderlease_malformed_fields_total     lease fields that could not be understood
//	leaderlease_absent_fields_total        heartbeats and responses without a lease field
//	leaderlease_transfers_total            leases given up to transfer leadership
//	leaderlease_clock_faults_total         clock readings that failed or went backwards
//	leaderlease_disruptions_total          times that the machine was migrated or restored
//	leaderlease_obituaries_total           processes that were told to be dead
//	leaderlease_voided_promises_total      promises to them, void at once
//	leaderlease_held                       1 if a lease read would be served now
//	leaderlease_term                       newest term that this node knows
//	leaderlease_commit_index               commit index that raft has published
//	leaderlease_applied_index              index that the state machine has applied
//	leaderlease_waiting_reads              reads that wait for a round or for the state machine
//	leaderlease_misused                    1 if the embedding broke a rule and leases are off
//	leaderlease_remaining_seconds          for how long lease reads are still served
//	leaderlease_end_seconds                time until another leader may exist
//	leaderlease_promise_remaining_seconds  for how long this node is bound by a promise
//	leaderlease_restart_hold_seconds       for how long this node is bound by its restart
//	leaderlease_margin_seconds             configured MaxClockSkew
//	leaderlease_duration_seconds           configured Duration
//	leaderlease_max_promise_seconds        configured MaxPromise
//	leaderlease_saved_promise_seconds      longest promise that is saved, hence the next restart hold
//	leaderlease_clock_read_seconds         cost of one clock reading, measured at start
//	leaderlease_clock_counts_suspend       1 if the clock counts suspended time (assumption A2)
//	leaderlease_peers                      other voters, by state: granting, silent, suspect_clock, other_duration
//
// Reasons are the names of core.Status, kinds the fields of leaderlease.Stats.Withheld.
//
// # What to watch
//
//   - held is 0 on every member of a group, or reads by another path than lease
//     go up: the leader gets no quorum of grants; losses_total and
//     refusals_total say why.
//   - peers in a state other than granting: the group is a failure away from
//     having no lease. Lease.Info names the peer.
//   - clock_faults_total, peers{state="suspect_clock"}: an assumption about
//     clocks is false (docs/clocks.md).
//   - misused is 1, or malformed_fields_total goes up: a bug in the embedding,
//     or a peer that is not ours.
package metrics
