// Package leasepage is the page that shows leader leases as lanes over time: who holds
// the lease, until when, with which margin, and what has happened to it.
//
// It draws what traces tell (leaderlease.Trace), recorded or live. [Draw] turns the
// traces of all members into one [Picture], and the page, which is plain HTML, only
// shows that. The clocks of members have nothing in common, so each is laid on one axis,
// as well as the grants that a leader has counted allow: those have been given between
// two readings of its clock. What remains unknown is told with each end of a lease, and
// drawn as a shade.
package leasepage
