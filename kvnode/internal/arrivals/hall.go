package arrivals

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Config configures a Hall.
type Config struct {
	// Port names the port in what is logged.
	Port string
	// Strangers bound whoever Known does not report.
	Strangers Bounds
	// Known reports whether connections are expected from a host, an IP address or
	// what the network has instead. Unix sockets are known in any case. It is asked for each connection, and must not
	// ask the network. Default: none is known.
	Known func(host string) bool
	// Reserve bounds those that are known.
	Reserve Bounds
	// Open bounds all connections, those that have introduced included. Default: no
	// bound.
	Open int
	// Logger hears of those who were not let in, now and then. Default: nothing is
	// logged.
	Logger *slog.Logger
}

// Hall is where connections wait until they have said who they are. All its
// methods are safe for concurrent use.
type Hall struct {
	cfg      Config // immutable
	opened   time.Time
	complain rate.Sometimes

	// strangers and known never change; the lock guards what is in them.
	strangers, known *pool
	mu               struct {
		sync.Mutex
		open                 int
		shed, cut, throttled uint64
	}
}

// Stats says how a hall fares.
type Stats struct {
	// Guests wait. Open connections are these and those that have introduced.
	Guests, Open int
	// Shed connections were closed as soon as they came, Cut ones to make room,
	// Throttled ones before their handshake.
	Shed, Cut, Throttled uint64
}

// New returns an empty hall.
func New(cfg Config) *Hall {
	if cfg.Known == nil {
		cfg.Known = func(string) bool { return false }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Hall{
		cfg: cfg, opened: time.Now(), complain: rate.Sometimes{First: 1, Interval: 10 * time.Second},
		strangers: newPool(cfg.Strangers), known: newPool(cfg.Reserve),
	}
}

func (h *Hall) now() time.Duration { return time.Since(h.opened) }

// Enter makes c, which shakes hands if it is secure, a guest, or closes it, and
// reports which.
func (h *Hall) Enter(c net.Conn, secure bool) (*Guest, bool) {
	host := Host(c.RemoteAddr().String())
	g := &Guest{hall: h, pool: h.strangers, conn: under(c), owner: shared(host)}
	if _, local := c.RemoteAddr().(*net.UnixAddr); local || h.cfg.Known(host) {
		g.pool = h.known
	}
	g.alive = h.now()
	unlucky, ok := h.enter(g, secure)
	if unlucky != nil {
		_ = unlucky.conn.Close() // nothing was promised to it
		h.tell(unlucky.owner)
	}
	if !ok {
		return nil, false
	}
	return g, true
}

// enter returns whose connection is to be closed, if any is, and reports whether g
// is let in.
func (h *Hall) enter(g *Guest, secure bool) (unlucky *Guest, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if secure && g.pool.dry(g.alive, g.owner) {
		h.mu.throttled++
		return g, false
	}
	full := h.cfg.Open > 0 && h.mu.open >= h.cfg.Open
	crowded := len(g.pool.waiting) >= g.pool.limit
	if full || crowded {
		if g.pool == h.known && !crowded {
			unlucky = h.strangers.victim()
		}
		if unlucky == nil {
			unlucky = g.pool.victim()
		}
		if unlucky == nil {
			h.mu.shed++
			return g, false
		}
		h.mu.cut++
		unlucky.leaveLocked()
	}
	h.mu.open++
	g.pool.add(g)
	return unlucky, true
}

// tell logs, now and then, that not everybody was let in.
func (h *Hall) tell(owner string) {
	h.complain.Do(func() {
		s := h.Stats()
		h.cfg.Logger.Warn("connections that do not say who they are, or fail to, are turned away", "port", h.cfg.Port, "now", owner,
			"waiting", s.Guests, "open", s.Open, "most", h.cfg.Open, "shed", s.Shed, "cut", s.Cut, "throttled", s.Throttled)
	})
}

// Stats returns how the hall fares.
func (h *Hall) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{
		Guests: len(h.strangers.waiting) + len(h.known.waiting), Open: h.mu.open,
		Shed: h.mu.shed, Cut: h.mu.cut, Throttled: h.mu.throttled,
	}
}
