package kvnode

import (
	"maps"
	"sync"
	"time"
)

// hushTime is between two lines that say the same of one peer. Shorter: what lasts
// fills the log. Longer: who looks for what is wrong now does not find it.
const hushTime = 30 * time.Second

// maxLogged bounds the IDs of which something was logged in the last hushTime. Members are fewer. Peers may connect
// under any number of IDs, and nothing is logged of the others.
const maxLogged = 1024

// hush keeps what is logged of peers from being repeated too often.
type hush struct {
	mu    sync.Mutex
	until map[uint64]time.Time
}

// quiet limits what a node logs of each peer, for each thing that may go on for ever.
type quiet struct {
	dropped, moved, parameters, disk hush
	refused                          hush
	sent, received, undelivered      hush // snapshots
	died                             hush // obituaries that void nothing
}

// loud reports whether something should be logged of peer: the first time, and once
// every hushTime.
func (h *hush) loud(peer uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.Before(h.until[peer]) {
		return false
	}
	if h.until == nil {
		h.until = make(map[uint64]time.Time)
	}
	if len(h.until) >= maxLogged {
		maps.DeleteFunc(h.until, func(_ uint64, until time.Time) bool { return !now.Before(until) })
	}
	if len(h.until) >= maxLogged {
		return false
	}
	h.until[peer] = now.Add(hushTime)
	return true
}

// forget lets the next line about peer be loud.
func (h *hush) forget(peer uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.until, peer)
}
