package leasepage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

const (
	// feedInterval is the time between two messages of a feed.
	feedInterval = 100 * time.Millisecond
	// feedTimeout ends a Listen that has received no message for so long. Nothing is sent to
	// the other member, so a transport may not notice that its machine is gone.
	feedTimeout = 10 * time.Second
)

// ErrTooManyFeeds refuses a feed.
var ErrTooManyFeeds = fmt.Errorf("leasepage: the member has %d feeds, the most that it serves; retry later", maxViewers)

// Feed sends the member's trace to the page of another member, until ctx ends or the member
// stops; in that case the last message says so. A message carries all events since the one
// before, so a slow reader gets fewer and longer messages. It loses events only if Config.Trace
// does.
func (l *Live) Feed(ctx context.Context, send func([]byte) error) error {
	if l.feeds.Add(1) > maxViewers {
		l.feeds.Add(-1)
		return ErrTooManyFeeds
	}
	defer l.feeds.Add(-1)
	tick := time.NewTicker(feedInterval)
	defer tick.Stop()
	own := newLocalTrace(&l.cfg)
	for stops := false; ; stops = l.stopping() {
		now := l.cfg.Now()
		notes := own.next(now)
		if stops {
			notes = append(notes, note{At: now, Stops: true})
		}
		if err := send(message(now, notes, &own.Process)); err != nil || stops {
			return err
		}
		own.Events = own.Events[max(0, len(own.Events)-1):] // Take continues after the last one
		select {
		case <-tick.C:
		case <-l.cfg.Stopping:
		case <-ctx.Done():
			if !l.stopping() {
				return nil
			}
		}
	}
}

// stopping reports whether the member stops.
func (l *Live) stopping() bool {
	select {
	case <-l.cfg.Stopping:
		return true
	default:
		return false
	}
}

// localTrace reads the trace and the counters of this member.
type localTrace struct {
	history
	cfg     *Config
	counted counters
}

func newLocalTrace(cfg *Config) localTrace { return localTrace{cfg: cfg, counted: cfg.counters()} }

// next appends the new events, and returns the notes since the call before.
func (o *localTrace) next(now leaderlease.Instant) []note {
	known := max(0, len(o.Events)-1)
	o.Take(o.cfg.Trace)
	notes := gapNotes(o.Events[known:])
	o.Events = append(o.Events[:known], thin(o.Events[known:])...)
	o.Events = eventsSince(o.Events, now.Add(-keep))
	before := o.counted
	o.counted = o.cfg.counters()
	return append(notes, o.counted.since(&before, now)...)
}

// header is the first line of a message, as JSON. A trace in the format of leasetrace follows.
type header struct {
	Reading leaderlease.Instant `json:"reading"` // of the sender's clock
	Notes   []note              `json:"notes,omitempty"`
}

func message(now leaderlease.Instant, notes []note, p *leasetrace.Process) []byte {
	b, err := json.Marshal(header{now, notes})
	if err != nil {
		panic(err) // it has numbers only
	}
	b = leasetrace.AppendStart(append(b, '\n'), p.Start, time.Time{})
	for i := range p.Events {
		b = leasetrace.AppendEvent(b, &p.Events[i])
	}
	return b
}

// remote is what this member has received of a process of another member.
type remote struct {
	history
	member uint64
}

// listen passes on the feed of another member until ctx ends, the feed fails, or no message
// comes for feedTimeout.
func (l *Live) listen(ctx context.Context, member uint64, to chan<- remote) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout := time.AfterFunc(feedTimeout, cancel)
	defer timeout.Stop()
	return l.cfg.Listen(ctx, member, func(b []byte) error {
		timeout.Reset(feedTimeout)
		h, err := parse(b, member)
		if err != nil {
			return err
		}
		select {
		case to <- h:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// parse reads a message of the feed of member, and refuses what member cannot have sent.
func parse(b []byte, member uint64) (h remote, err error) {
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	var head header
	if err := json.Unmarshal(first, &head); err != nil {
		return h, fmt.Errorf("leasepage: the header of a message of member %x is no JSON: %w", member, err)
	}
	all, err := leasetrace.Read(bytes.NewReader(rest))
	if err != nil {
		return h, err
	}
	if len(all) != 1 || all[0].Start.ID != member {
		return h, fmt.Errorf("leasepage: a message of member %x has traces of %d processes, want one of its own", member, len(all))
	}
	if d := all[0].Start.Duration; d <= 0 {
		return h, fmt.Errorf("leasepage: a message of member %x has leases of %v, want more than 0", member, d)
	}
	return remote{history{Process: all[0], notes: head.Notes, reading: head.Reading}, member}, nil
}
