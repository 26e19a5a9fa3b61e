package leasepage

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

const (
	// maxWatchers bounds the pages that a member draws for, and the members that it
	// feeds, each.
	maxWatchers = 16
	// drawEvery is between two pictures. Shorter: more of a processor. Longer: a page that
	// is further behind.
	drawEvery = 250 * time.Millisecond
	// keep is for how long events are kept for who comes next, lately for how long a page
	// is told of them again: longer than any lease is drawn late.
	keep   = time.Minute
	lately = 5 * time.Second
	// redial is between two tries to hear a member, and two looks at who is one.
	redial = time.Second
)

// Config is what a Live needs of its member.
type Config struct {
	ID uint64
	// Trace is the member's own, Now its clock.
	Trace *leaderlease.Trace
	Now   func() leaderlease.Instant
	// Members returns the names of all members by ID.
	Members func() map[uint64]string
	// Listen calls receive with each message of another member's Feed, and returns when ctx
	// ends, or the feed or receive fails. It is called again a second later.
	Listen func(ctx context.Context, member uint64, receive func(message []byte) error) error
	// Votes reports whether a member does; nil means that all do.
	Votes func(member uint64) bool
	// Counted returns what the lease and the detector of the member have counted; nil means
	// that nothing is shown of it.
	Counted func() (leaderlease.Stats, detector.Stats)
	// Stopping is closed when the member begins to stop: its feeds and pages end. nil means
	// that their contexts alone end them.
	Stopping <-chan struct{}
}

// Live draws the leases of a cluster as they are, for as long as anybody watches; until
// then it does nothing. It knows each member from a feed of its own, in bounded memory.
type Live struct {
	cfg   Config
	feeds atomic.Int64

	mu struct {
		sync.Mutex
		show *show // nil if nobody watches
	}
}

// NewLive returns what draws for the pages of one member.
func NewLive(cfg Config) *Live { return &Live{cfg: cfg} }

// show is one time that somebody watches, from the first who comes to the last who goes.
type show struct {
	live     *Live
	watchers map[*watcher]bool // whether it has been sent all that is kept; under Live.mu
	cancel   context.CancelFunc
	done     chan struct{}

	// Owned by run.
	arrived chan heard
	own     owner
	others  []*heard // in the order in which they began
	seeds   map[leaderlease.TraceStart]knot
	dialled map[uint64]context.CancelFunc
	wg      sync.WaitGroup
}

// watcher is one page.
type watcher struct{ pictures chan []byte }

// join returns a watcher, and what ends it; none if there are enough.
func (l *Live) join() (*watcher, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.mu.show
	if s == nil {
		var ctx context.Context
		s = &show{
			live: l, watchers: make(map[*watcher]bool), done: make(chan struct{}), arrived: make(chan heard),
			seeds: make(map[leaderlease.TraceStart]knot), dialled: make(map[uint64]context.CancelFunc),
		}
		ctx, s.cancel = context.WithCancel(context.Background())
		l.mu.show = s
		go s.run(ctx)
	}
	if len(s.watchers) >= maxWatchers {
		return nil, nil
	}
	w := &watcher{pictures: make(chan []byte, 4)}
	s.watchers[w] = false
	return w, func() { l.leave(s, w) }
}

// leave ends a watcher, and the show with the last one.
func (l *Live) leave(s *show, w *watcher) {
	l.mu.Lock()
	delete(s.watchers, w)
	last := len(s.watchers) == 0
	if last && l.mu.show == s {
		l.mu.show = nil
	}
	l.mu.Unlock()
	if last {
		s.cancel()
		<-s.done
	}
}

func (s *show) run(ctx context.Context) {
	defer close(s.done)
	defer s.wg.Wait()
	defer s.cancel()
	s.own = owner{cfg: &s.live.cfg, counted: s.live.cfg.tally()}
	look, paint, own := time.NewTicker(redial), time.NewTicker(drawEvery), time.NewTicker(feedEvery)
	defer look.Stop()
	defer paint.Stop()
	defer own.Stop()
	s.dial(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-s.arrived:
			s.take(&h)
		case <-look.C:
			s.dial(ctx)
		case <-own.C:
			s.takeOwn(s.live.cfg.Now())
		case <-paint.C:
			s.send()
		}
	}
}

// dial begins to listen to new members, and ends it for those that are none any more.
func (s *show) dial(ctx context.Context) {
	members := s.live.cfg.Members()
	for id, stop := range s.dialled {
		if _, is := members[id]; !is {
			stop()
			delete(s.dialled, id)
		}
	}
	for id := range members {
		if id == s.live.cfg.ID || s.dialled[id] != nil {
			continue
		}
		one, stop := context.WithCancel(ctx)
		s.dialled[id] = stop
		s.wg.Go(func() { s.hear(one, id) })
	}
}

// hear listens to one member, again and again.
func (s *show) hear(ctx context.Context, id uint64) {
	for ctx.Err() == nil {
		_ = s.live.listen(ctx, id, s.arrived) // the page says which members are not heard
		select {
		case <-ctx.Done():
		case <-time.After(redial):
		}
	}
}

// take adds what has arrived to what is known of that process.
func (s *show) take(h *heard) {
	for _, o := range s.others {
		if o.Start == h.Start {
			o.reading = h.reading
			fresh := h.Events
			if n := len(o.Events); n > 0 { // it may have been out of reach, and the ring have lost events
				for len(fresh) > 0 && fresh[0].Seq <= o.Events[n-1].Seq {
					fresh = fresh[1:]
				}
				if len(fresh) > 0 {
					o.notes = append(o.notes, gaps([]leaderlease.TraceEvent{o.Events[n-1], fresh[0]})...)
				}
			}
			o.Events = append(o.Events, fresh...)
			o.notes = lateNotes(append(o.notes, h.notes...), o.reading.Add(-keep))
			o.Events = since(o.Events, o.reading.Add(-keep))
			return
		}
	}
	s.others = append(s.others, h)
	if len(s.others) > maxWatchers {
		oldest := slices.IndexFunc(s.others, func(o *heard) bool { // which another has followed
			return slices.ContainsFunc(s.others, func(n *heard) bool { return n.member == o.member && n != o })
		})
		s.others = slices.Delete(s.others, max(0, oldest), max(0, oldest)+1)
	}
}

// takeOwn adds what this member has to say by now.
func (s *show) takeOwn(now leaderlease.Instant) {
	if now.Valid() {
		s.own.notes = lateNotes(append(s.own.notes, s.own.take(now)...), now.Add(-keep))
	}
}

// send draws for all who watch: what is new, and all that is kept for who has come.
func (s *show) send() {
	now := s.live.cfg.Now()
	if _, begun := s.live.cfg.Trace.Start(); !begun || !now.Valid() {
		return
	}
	s.takeOwn(now)
	var news, all []byte
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	for w, knows := range s.watchers {
		data := &news
		if !knows {
			data = &all
		}
		if *data == nil {
			*data = s.draw(now, !knows)
		}
		select {
		case w.pictures <- *data:
			s.watchers[w] = true
		default: // it does not read
			close(w.pictures)
			delete(s.watchers, w)
		}
	}
}

// livePicture is a picture of what is kept, or of what is new only.
type livePicture struct {
	*Picture
	Now  ms   `json:"now"`
	Full bool `json:"full"`
}

// draw draws on the clock of this member.
func (s *show) draw(now leaderlease.Instant, full bool) []byte {
	names, part := s.live.cfg.Members(), keep
	if !full {
		part = lately
	}
	procs := []told{s.own.told}
	procs[0].reading = now
	for _, o := range s.others {
		if _, is := names[o.member]; !is {
			continue // not any more
		}
		procs = append(procs, o.told)
	}
	for i := range procs {
		p := &procs[i]
		p.from = p.reading.Add(-part)
		p.Events, p.notes = since(p.Events, p.from), lateNotes(p.notes, p.from)
	}
	tracks := followAll(procs, names)
	for _, t := range tracks {
		t.seed = s.seeds[t.p.Start]
	}
	align(tracks)
	maps.DeleteFunc(s.seeds, func(of leaderlease.TraceStart, _ knot) bool {
		return !slices.ContainsFunc(tracks, func(t *track) bool { return t.p.Start == of })
	})
	on, _ := tracks[0].axis.place(now)
	zero := on - int64(now)
	for _, t := range tracks {
		if on, fuzz := t.axis.place(t.last); !t.loose {
			s.seeds[t.p.Start] = knot{at: t.last, on: on - zero, fuzz: fuzz}
		}
	}
	p := livePicture{drawn(tracks, names, zero), rounded(int64(now)), full}
	for id := range names {
		p.unheard(id, names)
	}
	if votes := s.live.cfg.Votes; votes != nil {
		for _, l := range p.Lanes {
			id, _ := strconv.ParseUint(l.ID, 16, 64)
			l.Learner = !votes(id)
		}
	}
	if !full {
		p.From = rounded(int64(now.Add(-part)))
	}
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // numbers and strings
	}
	return data
}
