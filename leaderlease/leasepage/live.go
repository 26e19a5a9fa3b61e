package leasepage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

const (
	// maxViewers bounds the open pages of a member, the feeds that it sends, and the
	// processes that it keeps events of, each.
	maxViewers = 16
	// drawInterval is the time between two pictures.
	drawInterval = 250 * time.Millisecond
	// keep is how long events are kept, for the first picture of a page. Later pictures
	// begin recent ago: a page joins them to what it has.
	keep   = time.Minute
	recent = 5 * time.Second
	// retryInterval is the time between two attempts to listen to a member, and between two
	// looks at the member list.
	retryInterval = time.Second
)

// Config is what a Live needs of its member. ID, Trace, Now, Members and Listen are required.
type Config struct {
	// ID is the member's raft ID.
	ID uint64
	// Trace is the member's trace, and Now reads the clock of its Lease.
	Trace *leasetrace.Trace
	Now   func() leaderlease.Instant
	// Members returns the names of all members by ID, this one included.
	Members func() map[uint64]string
	// Listen calls receive with each message of another member's Feed. It returns when ctx
	// ends, or the feed or receive fails, and is called again a second later.
	Listen func(ctx context.Context, member uint64, receive func(message []byte) error) error
	// Votes reports whether a member is a voter; nil means that all members are.
	Votes func(member uint64) bool
	// Counted returns what the member's lease and detector have counted; nil means that the
	// page shows no reads and no suspicions of this member.
	Counted func() (leaderlease.Stats, detector.Stats)
	// Stopping is closed when the member begins to stop: its feeds and pages end then. With
	// nil they end with their contexts.
	Stopping <-chan struct{}
}

// Live draws the leases of a running cluster. It works while pages are open or other members
// receive its Feed.
type Live struct {
	cfg   Config
	feeds atomic.Int64

	mu struct {
		sync.Mutex
		session *session // nil if no page is open
	}
}

// NewLive returns a Live for one member.
func NewLive(cfg Config) *Live { return &Live{cfg: cfg} }

// viewer is one open page.
type viewer struct {
	pictures chan []byte // closed if the page reads too slowly
	joined   bool        // it was sent all that is kept
}

// join returns a new viewer and a function that ends it, or nil if maxViewers pages are open.
// The first viewer starts a session.
func (l *Live) join() (*viewer, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.session
	if s == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s = newSession(l, cancel)
		l.mu.session = s
		go s.run(ctx)
	}
	if len(s.viewers) >= maxViewers {
		return nil, nil
	}
	v := &viewer{pictures: make(chan []byte, 4)}
	s.viewers[v] = struct{}{}
	return v, func() { l.leave(s, v) }
}

// leave ends a viewer, and with the last viewer its session.
func (l *Live) leave(s *session, v *viewer) {
	l.mu.Lock()
	delete(s.viewers, v)
	last := len(s.viewers) == 0
	if last && l.mu.session == s {
		l.mu.session = nil
	}
	l.mu.Unlock()
	if last {
		s.cancel()
		<-s.done
	}
}

// session listens to all members and sends pictures, from the first open page until the last
// one is closed.
type session struct {
	live    *Live
	viewers map[*viewer]struct{} // under Live.mu
	cancel  context.CancelFunc
	done    chan struct{} // closed when run has returned

	// The goroutine of run owns these.
	received  chan remote
	own       localTrace
	others    []*remote                     // in the order in which they began
	placed    map[leasetrace.Start]anchor   // where the picture before had each process
	listeners map[uint64]context.CancelFunc // by member
	wg        sync.WaitGroup
}

func newSession(l *Live, cancel context.CancelFunc) *session {
	return &session{
		live: l, viewers: make(map[*viewer]struct{}), cancel: cancel, done: make(chan struct{}),
		received: make(chan remote), own: newLocalTrace(&l.cfg),
		placed: make(map[leasetrace.Start]anchor), listeners: make(map[uint64]context.CancelFunc),
	}
}

func (s *session) run(ctx context.Context) {
	defer close(s.done)
	defer s.wg.Wait()
	defer s.cancel()
	members, draw, own := time.NewTicker(retryInterval), time.NewTicker(drawInterval), time.NewTicker(feedInterval)
	defer members.Stop()
	defer draw.Stop()
	defer own.Stop()
	s.updateListeners(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-s.received:
			s.addRemote(&h)
		case <-members.C:
			s.updateListeners(ctx)
		case <-own.C:
			s.addLocal(s.live.cfg.Now())
		case <-draw.C:
			s.sendPictures()
		}
	}
}

// updateListeners starts to listen to new members, and stops for removed ones.
func (s *session) updateListeners(ctx context.Context) {
	members := s.live.cfg.Members()
	for id, stop := range s.listeners {
		if _, is := members[id]; !is {
			stop()
			delete(s.listeners, id)
		}
	}
	for id := range members {
		if id == s.live.cfg.ID || s.listeners[id] != nil {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		s.listeners[id] = stop
		s.wg.Go(func() { s.listenTo(ctx, id) })
	}
}

// listenTo listens to one member until ctx ends.
func (s *session) listenTo(ctx context.Context, id uint64) {
	for ctx.Err() == nil {
		_ = s.live.listen(ctx, id, s.received) // the page shows which members are not heard
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// addRemote adds a message to what is known of its process.
func (s *session) addRemote(h *remote) {
	i := slices.IndexFunc(s.others, func(o *remote) bool { return o.Start == h.Start })
	if i < 0 {
		s.addProcess(h)
		return
	}
	o := s.others[i]
	o.reading = h.reading
	fresh := h.Events
	if n := len(o.Events); n > 0 {
		last := o.Events[n-1]
		for len(fresh) > 0 && fresh[0].Seq <= last.Seq { // a new feed repeats what the trace keeps
			fresh = fresh[1:]
		}
		if len(fresh) > 0 { // the trace may have lost events between two feeds
			o.notes = append(o.notes, gapNotes([]leasetrace.Event{last, fresh[0]})...)
		}
	}
	o.notes = notesSince(append(o.notes, h.notes...), o.reading.Add(-keep))
	o.Events = eventsSince(append(o.Events, fresh...), o.reading.Add(-keep))
}

// addProcess adds a process. Above maxViewers it forgets the oldest process that another one of
// the same member has replaced, so that a member that restarts often evicts no other member.
func (s *session) addProcess(h *remote) {
	s.others = append(s.others, h)
	if len(s.others) > maxViewers {
		oldest := slices.IndexFunc(s.others, func(o *remote) bool {
			return slices.ContainsFunc(s.others, func(n *remote) bool { return n.member == o.member && n != o })
		})
		s.others = slices.Delete(s.others, max(0, oldest), max(0, oldest)+1)
	}
}

// addLocal adds the new events and notes of this member.
func (s *session) addLocal(now leaderlease.Instant) {
	if now.Valid() {
		s.own.notes = notesSince(append(s.own.notes, s.own.next(now)...), now.Add(-keep))
	}
}

// sendPictures sends each viewer a picture: of all that is kept if it is the viewer's first.
func (s *session) sendPictures() {
	now := s.live.cfg.Now()
	if _, begun := s.live.cfg.Trace.Start(); !begun || !now.Valid() {
		return
	}
	s.addLocal(now)
	var update, full []byte
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	for v := range s.viewers {
		data := &update
		if !v.joined {
			data = &full
		}
		if *data == nil {
			*data = s.drawPicture(now, !v.joined)
		}
		select {
		case v.pictures <- *data:
			v.joined = true
		default: // it reads too slowly
			close(v.pictures)
			delete(s.viewers, v)
		}
	}
}

// livePicture is a picture of the last keep if Full, or else of what is recent.
type livePicture struct {
	*Picture
	Now  ms   `json:"now"`
	Full bool `json:"full"`
}

// drawPicture draws what is known, on the clock of this member.
func (s *session) drawPicture(now leaderlease.Instant, full bool) []byte {
	names, part := s.live.cfg.Members(), keep
	if !full {
		part = recent
	}
	timelines := s.readTimelines(now, names, part)
	align(timelines)
	on, _ := timelines[0].axis.place(now)
	zero := on - int64(now)
	clear(s.placed)
	for _, t := range timelines {
		if on, fuzz := t.axis.place(t.last); !t.loose {
			s.placed[t.p.Start] = anchor{at: t.last, on: on - zero, fuzz: fuzz}
		}
	}
	p := livePicture{drawn(timelines, names, zero), rounded(int64(now)), full}
	for id := range names {
		p.addUnheard(id, names)
	}
	for _, l := range p.Lanes {
		id, _ := strconv.ParseUint(l.ID, 16, 64)
		l.Learner = s.live.cfg.Votes != nil && !s.live.cfg.Votes(id)
	}
	if !full {
		p.From = rounded(int64(now.Add(-part)))
	}
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // it has numbers and strings only
	}
	return data
}

// readTimelines reads the last part of the processes of present members, this process first.
func (s *session) readTimelines(now leaderlease.Instant, names map[uint64]string, part time.Duration) []*timeline {
	processes := []history{s.own.history}
	processes[0].reading = now
	for _, o := range s.others {
		if _, is := names[o.member]; is {
			processes = append(processes, o.history)
		}
	}
	for i := range processes {
		p := &processes[i]
		p.from = p.reading.Add(-part)
		p.Events, p.notes = eventsSince(p.Events, p.from), notesSince(p.notes, p.from)
	}
	timelines := readAll(processes, names)
	for _, t := range timelines {
		t.placed = s.placed[t.p.Start]
	}
	return timelines
}

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
