package server

import (
	"net/http"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
	"github.com/leaderlease/go/leaderlease/leasepage"
)

// newLeases returns the Live of the page of leases, nil if the page is turned off.
func (s *Server) newLeases() *leasepage.Live {
	if s.cfg.DisableLeasePage {
		return nil
	}
	trace, clock := s.node.Trace()
	return leasepage.NewLive(leasepage.Config{
		ID: s.node.ID(), Trace: trace, Now: clock.Now, Members: s.memberNames,
		Votes:  func(id uint64) bool { return !s.node.Store().Members().ByID[id].Learner },
		Listen: s.listenToLease, Stopping: s.streams.Done(),
		Counted: func() (leaderlease.Stats, detector.Stats) { return s.node.Lease().Stats(), s.node.Suspicions() },
	})
}

func (s *Server) memberNames() map[uint64]string {
	names := make(map[uint64]string)
	for id, m := range s.node.Store().Members().ByID {
		names[id] = m.Name
	}
	return names
}

// leasePages adds the page of leases and its pictures. They show no keys or values.
func (s *Server) leasePages(mux *http.ServeMux) {
	if s.leases == nil {
		return
	}
	mux.HandleFunc("GET /lease", leasepage.ServePage)
	mux.HandleFunc("GET /lease/events", s.leases.ServeEvents)
	mux.Handle("GET /{$}", http.RedirectHandler("/lease", http.StatusFound))
}
