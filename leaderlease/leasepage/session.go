package leasepage

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

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
