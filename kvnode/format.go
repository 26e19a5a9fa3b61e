package kvnode

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/confchange"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

const (
	// formatPause is the pause between two checks whether the cluster's format can be raised.
	formatPause = time.Second
	// formatReminder is the time between two equal log lines about members that prevent it. Lines that
	// change come after admission.Reminder.
	formatReminder = time.Hour
)

// formatUpgrade raises the cluster's format.
type formatUpgrade struct {
	// Immutable.
	self       uint64
	newest     int64 // that this version knows
	store      *store.Store
	links      *transport.Transport
	members    *membership.List
	leadership *leadership
	proposals  *proposals.Pending
	life       *lifecycle.Lifecycle
	log        *slog.Logger
}

// run makes the leader raise the cluster's format once the versions of all members know a newer one. Until then
// features that need it are off.
//
// A member's hello is only a hint, as the member may come back with an older version. The entry stops such
// a member: it is a configuration change of a kind at which versions of the first format stop, and later
// versions check its format.
func (f *formatUpgrade) run() {
	var logged []string
	loggedAt := time.Now()
	for f.store.Format() < f.newest {
		if !f.life.Sleep(formatPause) {
			return
		}
		format, keptBy := f.common()
		since := time.Since(loggedAt)
		if len(keptBy) > 0 && (since >= formatReminder || since >= admission.Reminder && !slices.Equal(keptBy, logged)) {
			loggedAt, logged = time.Now(), keptBy
			f.log.Warn("members keep the cluster's format: start them with this version, and remove those that are gone for good",
				"format", f.store.Format(), "newest", f.newest, "members", keptBy)
		}
		if format > f.store.Format() && f.leadership.LeadingTerm() != 0 {
			f.propose(format)
		}
	}
}

// common returns the newest format that all members know, 0 if one is not connected. keptBy names the
// members because of which it is not the newest format of this version, each with the reason.
func (f *formatUpgrade) common() (format int64, keptBy []string) {
	if format = f.newest; f.store.Format() >= format {
		return format, nil
	}
	said := map[uint64]int64{f.self: format}
	for _, p := range f.links.Peers() {
		if p.Connected {
			said[p.ID] = max(p.Hello.Format, store.FormatFirst)
		}
	}
	for _, m := range membership.Sorted(f.store.Members()) {
		knows, ok := said[m.ID]
		format = min(format, knows)
		switch {
		case !ok:
			keptBy = append(keptBy, f.members.Describe(m.ID)+": not connected")
		case knows < f.newest:
			keptBy = append(keptBy, fmt.Sprintf("%s: knows format %d", f.members.Describe(m.ID), knows))
		}
	}
	return format, keptBy
}

// propose raises the format. If that fails it is tried again, or another leader does it.
func (f *formatUpgrade) propose(format int64) {
	c := confchange.Context{Proposal: f.proposals.NextID(), Format: format}
	entry, err := confchange.NewFormatEntry(&c)
	if err != nil {
		f.life.Fail(err)
		return
	}
	if _, err := f.proposals.SubmitChange(context.Background(), c.Proposal, entry); err == nil {
		f.log.Info("the cluster's format is raised", "format", format)
	}
}
