package leasepage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// FeedMethod is a stream of what one member traces, for the pages of the others: made by
// hand, as that of package status.
const (
	FeedMethod  = "/" + feedService + "/Trace"
	feedService = "leaderlease.kvnode.v1.Lease"

	// silence is for how long a member that feeds may say nothing before it is dialled
	// again. Nothing is sent to it, so no error tells that its machine is gone. Shorter: a
	// first message over a slow network is not waited for.
	silence = 10 * time.Second
	// feedEvery is between two messages of a feed. Longer: pages are further behind.
	feedEvery = 100 * time.Millisecond
)

// errFeeds refuses a feed, for those of all members' pages are few.
var errFeeds = status.Errorf(codes.ResourceExhausted, "kvnode: %d members are fed already", maxWatchers)

// feed is what the service asks.
type feed interface {
	feed(ctx context.Context, send func([]byte) error) error
}

// Register serves what this member traces to the others.
func (l *Live) Register(s grpc.ServiceRegistrar) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: feedService,
		HandlerType: (*feed)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Trace", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
				return err
			}
			return l.feed(stream.Context(), func(b []byte) error { return stream.SendMsg(wrapperspb.Bytes(b)) })
		}}},
	}, l)
}

// feed sends what is new, with a reading of the clock, until ctx ends, and if it is the
// member that ends, that it does. Who reads slowly is sent more at once, up to what the
// trace keeps.
func (l *Live) feed(ctx context.Context, send func([]byte) error) error {
	if l.feeds.Add(1) > maxWatchers {
		l.feeds.Add(-1)
		return errFeeds
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
		case <-ctx.Done():
			if leaving = errors.Is(context.Cause(ctx), rpctypes.ErrGRPCStopped); !leaving {
				return nil
			}
		}
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

// listen passes on what a member traces, until ctx ends, or the member does or is silent.
func listen(ctx context.Context, conn grpc.ClientConnInterface, member uint64, to chan<- heard) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	desc := &grpc.StreamDesc{ServerStreams: true}
	stream, err := conn.NewStream(ctx, desc, FeedMethod)
	if err == nil {
		err = errors.Join(stream.SendMsg(new(emptypb.Empty)), stream.CloseSend())
	}
	for err == nil {
		m := new(wrapperspb.BytesValue)
		if err = stream.RecvMsg(m); err != nil {
			break
		}
		quiet.Reset(silence)
		var h heard
		if h, err = parse(m.GetValue(), member); err != nil {
			break
		}
		select {
		case to <- h:
		case <-ctx.Done():
			return nil
		}
	}
	return err
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
