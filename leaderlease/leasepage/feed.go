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
	// silence is for how long a member that feeds may say nothing before Listen is called
	// again. Nothing is sent to it, so no error tells that its machine is gone. Shorter: a
	// first message over a slow network is not waited for.
	silence = 10 * time.Second
	// feedEvery is between two messages of a feed. Longer: pages are further behind.
	feedEvery = 100 * time.Millisecond
)

// ErrTooManyFeeds refuses a feed.
var ErrTooManyFeeds = fmt.Errorf("leasepage: the member feeds %d others, as many as it may", maxWatchers)

// Feed sends what the member traces to another member's page, until ctx ends or the member
// stops, which its last message says. The other member's Config.Listen receives the messages.
// A reader that is slow is sent more at once, up to what the trace keeps.
func (l *Live) Feed(ctx context.Context, send func([]byte) error) error {
	if l.feeds.Add(1) > maxWatchers {
		l.feeds.Add(-1)
		return ErrTooManyFeeds
	}
	defer l.feeds.Add(-1)
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	own := owner{cfg: &l.cfg, counted: l.cfg.tally()}
	for leaving := false; ; {
		now := l.cfg.Now()
		notes := own.take(now)
		if leaving {
			notes = append(notes, note{At: now, Leaves: true})
		}
		if err := send(message(now, notes, &own.Process)); err != nil || leaving {
			return err
		}
		own.Events = own.Events[max(0, len(own.Events)-1):] // the last says what was sent
		select {
		case <-tick.C:
		case <-l.cfg.Stopping:
		case <-ctx.Done():
			if !l.stopping() {
				return nil
			}
		}
		leaving = l.stopping()
	}
}

// owner takes what this member traces and counts.
type owner struct {
	told
	cfg     *Config
	counted tally
}

// take adds what is new to the events, and returns its notes.
func (o *owner) take(now leaderlease.Instant) []note {
	known := max(0, len(o.Events)-1)
	o.Take(o.cfg.Trace)
	notes := gaps(o.Events[known:])
	o.Events = append(o.Events[:known], thin(o.Events[known:])...)
	o.Events = since(o.Events, now.Add(-keep))
	before := o.counted
	o.counted = o.cfg.tally()
	return append(notes, o.counted.since(&before, now)...)
}

// heading is the first line of a message. A trace follows.
type heading struct {
	Reading leaderlease.Instant `json:"reading"`
	Notes   []note              `json:"notes,omitempty"`
}

func message(now leaderlease.Instant, notes []note, p *leasetrace.Process) []byte {
	b, err := json.Marshal(heading{now, notes})
	if err != nil {
		panic(err) // numbers
	}
	b = leasetrace.AppendStart(append(b, '\n'), p.Start, time.Time{})
	for i := range p.Events {
		b = leasetrace.AppendEvent(b, &p.Events[i])
	}
	return b
}

// heard is what has arrived of one process.
type heard struct {
	told
	member uint64
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

// listen passes on what a member traces, until ctx ends, or the member does or is silent.
func (l *Live) listen(ctx context.Context, member uint64, to chan<- heard) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	return l.cfg.Listen(ctx, member, func(b []byte) error {
		quiet.Reset(silence)
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

// parse reads a message of a feed.
func parse(b []byte, member uint64) (h heard, err error) {
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	var head heading
	if err := json.Unmarshal(first, &head); err != nil {
		return h, fmt.Errorf("leasepage: a message without a reading of a clock: %w", err)
	}
	all, err := leasetrace.Read(bytes.NewReader(rest))
	if err != nil {
		return h, err
	}
	if len(all) != 1 || all[0].Start.ID != member {
		return h, fmt.Errorf("leasepage: the feed of member %x is of another, or of several", member)
	}
	if d := all[0].Start.Duration; d <= 0 {
		return h, fmt.Errorf("leasepage: the feed of member %x has leases of %v, want more than 0", member, d)
	}
	return heard{told{Process: all[0], notes: head.Notes, reading: head.Reading}, member}, nil
}
