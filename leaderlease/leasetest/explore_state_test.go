package leasetest

import (
	"crypto/sha256"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"
)

// key is a hash of the visible state.
type key [sha256.Size]byte

// key hashes the visible state of every node, of the messages and events under way, and of
// the script. States with equal keys may differ in hidden state of raft or the Lease; the
// search then follows only one of them.
func (p *play) key() key {
	h := sha256.New()
	for _, n := range p.c.nodes {
		n.see(h)
	}
	for _, m := range p.c.Net.held {
		_, _ = fmt.Fprintln(h, describeMessage(m), m.GetIndex(), m.GetCommit(), len(m.GetEntries()))
	}
	// The order of events at the same instant is ignored.
	due := make([]time.Duration, 0, len(p.c.world.events))
	for _, e := range p.c.world.events {
		due = append(due, e.at-p.c.world.now)
	}
	slices.Sort(due)
	_, _ = fmt.Fprintln(h, due, p.c.Net.cut, p.delays, p.disk, p.apply, p.written, p.open, len(p.contexts), len(p.works))
	for _, m := range p.held {
		_, _ = fmt.Fprint(h, *m)
	}
	return key(h.Sum(nil))
}

// see writes the visible state of a node.
func (n *Node) see(w io.Writer) {
	if !n.up {
		s, _, err := n.disk.InitialState()
		must(err)
		_, _ = fmt.Fprintln(w, "down", s.GetTerm(), s.GetVote(), s.GetCommit(), n.last(), n.Clock.within != nil)
		return
	}
	s := n.raw.BasicStatus()
	_, _ = fmt.Fprintln(w, s.SoftState, s.GetTerm(), s.GetVote(), s.GetCommit(), s.Applied, s.LeadTransferee, n.last(),
		n.Applied(), n.Hash(), n.conf.String(), n.paused, n.busy, n.lags, len(n.asked), n.missed, n.confIndex, n.handed, n.made, len(n.inbox), len(n.unsynced), len(n.appends.jobs), len(n.applies.jobs))
	_, _ = fmt.Fprintln(w, timers(n), n.Clock.rate, n.Clock.stopped, n.Clock.failed, n.Clock.within != nil, n.mistake(), n.Options.FilterOnArrival)
	if n.lease == nil {
		return
	}
	i := n.lease.Info()
	_, _ = fmt.Fprintln(w, i.Term, i.Leader, i.Role, i.Status, i.Remaining, i.End, i.Promise, i.Commit, i.Applied, i.Waiting, i.Err)
	for _, peer := range i.Peers {
		_, _ = fmt.Fprintln(w, peer)
	}
}

// timers returns raft's internal timers.
func timers(n *Node) (t [3]int64) {
	r := reflect.ValueOf(n.raw).Elem().FieldByName("raft").Elem()
	for i, name := range []string{"electionElapsed", "heartbeatElapsed", "randomizedElectionTimeout"} {
		t[i] = r.FieldByName(name).Int()
	}
	return t
}

func (n *Node) last() string {
	index, err := n.disk.LastIndex()
	must(err)
	term, err := n.disk.Term(index)
	must(err)
	return fmt.Sprint(index, "/", term)
}
