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
	// versionReminder is the time between two equal log lines about members that prevent it. Lines that
	// change come after admission.Reminder.
	versionReminder = time.Hour
)

// versionUpgrade raises the cluster version.
type versionUpgrade struct {
	// Immutable.
	self       uint64
	newest     int64 // that this version of kvnode knows
	store      *store.Store
	links      *transport.Transport
	members    *membership.List
	leadership *leadership
	proposals  *proposals.Pending
	life       *lifecycle.Lifecycle
	log        *slog.Logger
}

// run makes the leader raise the cluster version once all members know a newer one. Until then features that need it
// are off.
//
// A member's hello is only a hint, as the member may come back with an older version. The entry stops such
// a member: it is a configuration change of a kind at which the first versions of kvnode stop, and later
// versions of kvnode compare the cluster version in it with the newest that they know.
func (f *versionUpgrade) run() {
	var logged []string
	loggedAt := time.Now()
	for f.store.ClusterVersion() < f.newest {
		if !f.life.Sleep(versionPause) {
			return
		}
		version, keptBy := f.common()
		since := time.Since(loggedAt)
		if len(keptBy) > 0 && (since >= versionReminder || since >= admission.Reminder && !slices.Equal(keptBy, logged)) {
			loggedAt, logged = time.Now(), keptBy
			f.log.Warn("members keep the cluster version: start them with this version, and remove those that are gone for good",
				"version", f.store.ClusterVersion(), "newest", f.newest, "members", keptBy)
		}
		if version > f.store.ClusterVersion() && f.leadership.LeadingTerm() != 0 {
			f.propose(version)
		}
	}
}

// common returns the newest cluster version that all members know, 0 if one is not connected. keptBy names the
// members because of which it is not the newest that this member knows, each with the reason.
func (f *versionUpgrade) common() (version int64, keptBy []string) {
	if version = f.newest; f.store.ClusterVersion() >= version {
		return version, nil
	}
	said := map[uint64]int64{f.self: version}
	for _, p := range f.links.Peers() {
		if p.Connected {
			said[p.ID] = max(p.Hello.ClusterVersion, store.ClusterVersionFirst)
		}
	}
	for _, m := range membership.Sorted(f.store.Members()) {
		knows, ok := said[m.ID]
		version = min(version, knows)
		switch {
		case !ok:
			keptBy = append(keptBy, f.members.Describe(m.ID)+": not connected")
		case knows < f.newest:
			keptBy = append(keptBy, fmt.Sprintf("%s: knows cluster version %d", f.members.Describe(m.ID), knows))
		}
	}
	return version, keptBy
}

// propose raises the cluster version. If that fails it is tried again, or another leader does it.
func (f *versionUpgrade) propose(version int64) {
	c := membership.ChangeContext{Proposal: f.proposals.NextID(), ClusterVersion: version}
	entry, err := membership.NewClusterVersionEntry(&c)
	if err != nil {
		f.life.Fail(err)
		return
	}
	if _, err := f.proposals.SubmitChange(context.Background(), c.Proposal, entry); err == nil {
		f.log.Info("the cluster version is raised", "version", version)
	}
}
