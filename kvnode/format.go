package kvnode

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/confchange"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

const (
	// formatPause is between two looks at whether the cluster's format can be raised.
	formatPause = time.Second
	// formatReminder is between two lines about what keeps it; while that changes,
	// they come as often as other reminders do.
	formatReminder = time.Hour
)

// formats knows who keeps the cluster's format, and raises it.
type formats struct {
	*parts
	proposals *proposals.Pending
}

// run has the leader raise the cluster's format as soon as all members have
// said that their version knows a newer one. Until then what is new is not used.
//
// What they say is a hint, for a member may come back with an older version. The
// entry itself keeps such a member from going on: it is a configuration change of a
// kind that versions of the first format do not take, and stop at, and of which
// later ones know whether they know its format.
func (f *formats) run() {
	var known []string
	said := time.Now()
	for f.store.Format() < f.cfg.newestFormat {
		if !f.life.Sleep(formatPause) {
			return
		}
		format, keptBy := f.common()
		since := time.Since(said)
		if len(keptBy) > 0 && (since >= formatReminder || since >= admission.Reminder && !slices.Equal(keptBy, known)) {
			said, known = time.Now(), keptBy
			f.log.Warn("members keep the cluster's format: start them with this version, and remove those that are gone for good",
				"format", f.store.Format(), "newest", f.cfg.newestFormat, "members", keptBy)
		}
		if format > f.store.Format() && f.leadership.LeadingTerm() != 0 {
			f.propose(format)
		}
	}
}

// common returns the newest format that all members know, 0 if one has not
// said, and who of them keeps it from being the newest that this one knows, and why.
func (f *formats) common() (format int64, keptBy []string) {
	if format = f.cfg.newestFormat; f.store.Format() >= format {
		return format, nil
	}
	said := map[uint64]int64{f.ID(): format}
	for _, p := range f.links.Peers() {
		if p.Connected {
			said[p.ID] = max(p.Hello.Format, store.FormatFirst)
		}
	}
	for _, m := range sortedMembers(f.store.Members()) {
		knows, ok := said[m.ID]
		format = min(format, knows)
		switch {
		case !ok:
			keptBy = append(keptBy, f.book.nameOf(m.ID)+": not connected")
		case knows < f.cfg.newestFormat:
			keptBy = append(keptBy, fmt.Sprintf("%s: knows format %d", f.book.nameOf(m.ID), knows))
		}
	}
	return format, keptBy
}

func (f *formats) propose(format int64) {
	c := confchange.Context{Proposal: f.proposals.NextID(), Format: format}
	entry, err := confchange.NewFormatEntry(&c)
	if err != nil {
		f.life.Fail(err)
		return
	}
	// If it fails it is tried again, or another leader does.
	if _, err := f.proposals.SubmitChange(context.Background(), c.Proposal, entry); err == nil {
		f.log.Info("the cluster's format is raised", "format", format)
	}
}

// knowsFormat refuses a peer whose version does not know the cluster's format: it
// stops, or has stopped, where the format was raised.
func knowsFormat(h transport.Hello, format int64) error {
	if max(h.Format, store.FormatFirst) < format {
		return &transport.Refusal{Reason: transport.ReasonOther, Text: fmt.Sprintf(
			"member %x (%s) is of a version that knows format %d, and the cluster has format %d: start it with the version of the others",
			h.From, Shown(h.Name), max(h.Format, store.FormatFirst), format)}
	}
	return nil
}
