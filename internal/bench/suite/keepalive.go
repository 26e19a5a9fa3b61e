package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/leaderlease/go/internal/bench/report"
	"github.com/leaderlease/go/internal/bench/wire"
)

// KeepAlivePlan is what renewing TTL leases is measured with.
type KeepAlivePlan struct {
	Beside
	// TTLLeases is how many TTL leases there are.
	TTLLeases int
	// Streams are the numbers of streams of keep-alives.
	Streams []int
}

// grantTime is what granting and revoking a TTL lease takes, about.
const grantTime = time.Millisecond

// KeepAlive plans the measurement of keep-alives.
func (s *Suite) KeepAlive(p KeepAlivePlan) {
	s.beside(report.KeepAlive, &p.Beside, func(servers []*besides, size int) {
		granted := make(map[string]*wire.TTLLeases)
		s.inTurn(servers, 0, fmt.Sprintf("keepalive: members=%d, grant", size), time.Duration(p.TTLLeases)*grantTime, func(ctx context.Context, c *besides) error {
			l, err := wire.GrantTTLLeases(ctx, c.roles.Leader, p.TTLLeases)
			if err == nil {
				granted[c.Name] = l
				s.later(l.Close)
			}
			return err
		})
		for round := range p.Rounds {
			for _, n := range p.Streams {
				for _, at := range placesOf(size) {
					name := fmt.Sprintf("keepalive: members=%d, round %d, %d streams at the %s", size, round+1, n, at)
					s.inTurn(servers, round, name, p.Warmup+p.Duration, func(ctx context.Context, c *besides) error {
						return s.keepAlive(ctx, &p, c, granted[c.Name], n, at, round)
					})
				}
			}
		}
	})
}

const (
	atLeader   = "leader"
	atFollower = "follower"
)

// placesOf are where clients of a cluster may be. A follower asks the leader.
func placesOf(size int) []string {
	if size == 1 {
		return []string{atLeader}
	}
	return []string{atLeader, atFollower}
}

func (s *Suite) keepAlive(ctx context.Context, p *KeepAlivePlan, c *besides, l *wire.TTLLeases, streams int, at string, round int) error {
	endpoint := c.roles.Leader
	if at == atFollower {
		endpoint = c.roles.Follower
	}
	res, err := l.Renew(ctx, endpoint, streams, p.times())
	if err != nil {
		return err
	}
	s.Report.AddTally(report.Measurement{
		Layer: report.KeepAlive, Arm: c.Name, Round: round, Elapsed: res.Elapsed, Sample: 1, Stale: res.Wrong,
		Group: report.Group{
			{Key: "streams", Value: fmt.Sprint(streams)},
			{Key: "leases", Value: fmt.Sprint(p.TTLLeases)},
			{Key: "at", Value: at},
			members(len(c.Endpoints)),
		},
	}, "keep-alive", res.Renew)
	return nil
}
