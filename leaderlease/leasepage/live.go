package leasepage

import (
	"context"
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
