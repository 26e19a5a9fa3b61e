// Package leasepage draws the leader leases of a cluster: a web page with one lane per
// member, which shows over time which member held the lease, until when, with which margin,
// and what happened to it. Its only input is traces of leases (leasetrace.Trace).
//
// Recorded traces: [Draw] turns the traces of all members into a [Picture], and [Write] writes
// that as one HTML file that needs nothing else.
//
// A running cluster: each member that serves the page has a [Live]. It serves [ServePage] and
// [Live.ServeEvents] over HTTP, and it sends [Live.Feed] to the other members over the
// embedder's own transport, from which their Config.Listen receives it. While no page is open
// and no other member listens, a Live does no work. Its memory is bounded.
//
// The clocks of members have nothing in common, so align.go places each of them on one axis. A
// leader that counts a grant bounds the difference: the voter read its clock after the probe
// was sent and before the grant arrived. The uncertainty that remains is shown at both ends of
// each lease, and counts wherever the page says how many leases are valid.
//
// For each instant the page shows the leases as they were known at that instant: it never counts a
// later renewal.
package leasepage
