package suite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leaderlease/go/internal/bench/report"
	"github.com/leaderlease/go/internal/bench/wire"
)

// Beside is several servers measured side by side, in clusters of one size after
// the other.
type Beside struct {
	Timing
	// Servers are measured in alternation; the first one is what the others are
	// compared with. Those that run already are measured once, beside clusters
	// of their own size.
	Servers []Server
	// Members are the sizes of the clusters that are started.
	Members []int
}

// sizes are those of all clusters.
func (b *Beside) sizes() []int {
	all := slices.Clone(b.Members)
	for _, srv := range b.Servers {
		if n := len(srv.Endpoints); srv.Program == nil && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

// besides is a server in a cluster of one size.
type besides struct {
	Server
	roles *wire.Roles // once it has started
}

// beside plans a part: for each size it starts the servers, does what plan adds,
// and stops them. Only what is measured runs.
func (s *Suite) beside(part string, b *Beside, plan func(servers []*besides, size int)) {
	for _, size := range b.sizes() {
		var servers []*besides
		for _, srv := range b.Servers {
			if srv.Program == nil && len(srv.Endpoints) != size {
				continue
			}
			srv.Size = size
			c := &besides{Server: srv}
			servers = append(servers, c)
			name := fmt.Sprintf("%s: start %s, members=%d", part, srv.Name, size)
			s.add(name, startTime, func(ctx context.Context) error { return s.startBesides(ctx, c) })
		}
		plan(servers, size)
		s.add(part+": who leads now", 0, func(ctx context.Context) error {
			for _, c := range servers {
				s.stillLeads(ctx, part, &c.Server, c.roles.Leader)
			}
			return nil
		})
		s.stop(part)
	}
}

func (s *Suite) startBesides(ctx context.Context, c *besides) error {
	if err := s.start(ctx, &c.Server); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	var err error
	if c.roles, err = wire.Find(ctx, c.Endpoints); err != nil {
		return err
	}
	s.Report.Note("%s: %d members, version %s.", c.Name, len(c.Endpoints), c.roles.Version)
	return nil
}

// inTurn plans a measurement of each server, in an order that turns.
func (s *Suite) inTurn(servers []*besides, round int, name string, takes time.Duration, measure func(ctx context.Context, c *besides) error) {
	for _, i := range rotated(len(servers), round) {
		c := servers[i]
		s.add(name+", "+c.Name, takes, func(ctx context.Context) error { return measure(ctx, c) })
	}
}

func members(size int) report.Label { return report.Label{Key: "members", Value: fmt.Sprint(size)} }
