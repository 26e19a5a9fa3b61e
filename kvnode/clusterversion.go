package kvnode

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

const (
	// versionPause is the pause between two checks whether the cluster version can be raised.
	versionPause = time.Second
	// versionReminder is the time between two equal log lines about the members that prevent it. A line that differs
	// from the last one is logged after admission.Reminder.
	versionReminder = time.Hour
)

// versionUpgrade raises the cluster version.
type versionUpgrade struct {
	// Immutable.
	self       uint64
	newest     int64 // the newest that this version of kvnode knows
	store      *store.Store
	links      *transport.Transport
	members    *membership.List
	leadership *leadership
	proposals  *proposals.Pending
	life       *lifecycle.Lifecycle
	log        *slog.Logger
}

// run raises the cluster version, if this member leads, once all members know a newer one.
//
// The hellos of the members show only what they know now: a member may come back with an older version of kvnode.
// The entry that raises the cluster version stops such a member.
func (v *versionUpgrade) run() {
	var logged []string
	loggedAt := time.Now()
	for v.store.ClusterVersion() < v.newest {
		if !v.life.Sleep(versionPause) {
			return
		}
		version, keptBy := v.common()
		since := time.Since(loggedAt)
		if len(keptBy) > 0 && (since >= versionReminder || since >= admission.Reminder && !slices.Equal(keptBy, logged)) {
			loggedAt, logged = time.Now(), keptBy
			v.log.Warn("the cluster version cannot be raised because of some members: start them with this version, or remove those that are gone for good",
				"version", v.store.ClusterVersion(), "newest", v.newest, "members", keptBy)
		}
		if version > v.store.ClusterVersion() && v.leadership.LeadingTerm() != 0 {
			v.propose(version)
		}
	}
}

// common returns the newest cluster version that all members know, 0 if one of them is not connected. keptBy names
// the members because of which that is not v.newest, each with the reason.
func (v *versionUpgrade) common() (version int64, keptBy []string) {
	if version = v.newest; v.store.ClusterVersion() >= version {
		return version, nil
	}
	byMember := map[uint64]int64{v.self: version}
	for _, p := range v.links.Peers() {
		if p.Connected {
			byMember[p.ID] = max(p.Hello.ClusterVersion, store.ClusterVersionFirst)
		}
	}
	for _, m := range membership.Sorted(v.store.Members()) {
		knows, ok := byMember[m.ID]
		version = min(version, knows) // 0 if it is not connected
		switch {
		case !ok:
			keptBy = append(keptBy, v.members.Describe(m.ID)+": not connected")
		case knows < v.newest:
			keptBy = append(keptBy, fmt.Sprintf("%s: knows cluster version %d", v.members.Describe(m.ID), knows))
		}
	}
	return version, keptBy
}

// propose raises the cluster version. If that fails, run tries again, here or on the next leader.
func (v *versionUpgrade) propose(version int64) {
	c := membership.ChangeContext{Proposal: v.proposals.NextID(), ClusterVersion: version}
	entry, err := membership.NewClusterVersionEntry(&c)
	if err != nil {
		v.life.Fail(err)
		return
	}
	if _, err := v.proposals.SubmitChange(context.Background(), c.Proposal, entry); err == nil {
		v.log.Info("the cluster version is raised", "version", version)
	}
}
