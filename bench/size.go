package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/leaderlease/go/bench/internal/report"
	"github.com/leaderlease/go/bench/internal/size"
	"github.com/leaderlease/go/bench/internal/wire"
)

// SizePlan says how servers with much data are measured. Warmup is how long they rest
// before their memory is read. Duration is how long a client is measured after the start
// of a compaction.
type SizePlan struct {
	Timing
	// Servers are started anew, without data, for each group of parts.
	Servers []Server
	// Keys is the number of keys of the largest data set. A tenth of them gets ten
	// versions each.
	Keys int
	// Streams is the number of streams of watches, on Conns connections.
	Streams, Conns int
}

const (
	littleKeys   = 2000
	sizeVersions = 10
	sizeValueLen = 256
	sizeClients  = 16
	sizePerTxn   = 100
	// sizeQuota is more than the largest data set needs in either server.
	sizeQuota = 8 << 30
	// littleTime, putTime, scanTime and streamTime are about how long one takes.
	littleTime = time.Millisecond
	putTime    = 40 * time.Microsecond
	scanTime   = 200 * time.Millisecond
	streamTime = 200 * time.Microsecond
)

// sized is a server in one round, from its start until it is stopped.
type sized struct {
	Server
	roles *wire.Roles // set by start and restarted
	plan  *SizePlan
	round int
	// revision is the revision of the newest put.
	revision int64
}

// sizePart is one measurement. The server holds the data of the parts before it.
type sizePart struct {
	name  string
	takes time.Duration
	run   func(ctx context.Context, c *sized) error
}

// Size plans the measurement of servers with much data.
func (s *Suite) Size(p SizePlan) {
	puts := func(n int) time.Duration { return time.Duration(n) * putTime }
	for round := range p.Rounds {
		s.fresh(&p, round, "little data", []sizePart{
			{"little data", littleKeys*littleTime + p.Warmup, s.little},
			{"streams of watches", time.Duration(p.Streams)*streamTime + p.Warmup, s.streams},
		})
		s.fresh(&p, round, "keys", []sizePart{
			{"keys", puts(p.Keys), s.keys},
			{"keys after a rest", p.Warmup, s.rested},
			{"scans", time.Duration(len(size.Scans())*scans) * scanTime, s.scans},
			{"a new member", puts(p.Keys) / 4, s.joined},
			{"a restart", puts(p.Keys) / 4, s.restarted},
		})
		s.fresh(&p, round, "versions", []sizePart{
			{"versions", puts(p.Keys) + p.Warmup, s.versions},
			{"compaction", p.Duration + p.Warmup, s.compaction},
		})
	}
}

// fresh starts servers without data, and plans parts on them: each part on one server
// after the other, in an order that turns from part to part.
func (s *Suite) fresh(p *SizePlan, round int, name string, parts []sizePart) {
	var servers []*sized
	for _, srv := range p.Servers {
		srv.Flags = append(srv.Flags, fmt.Sprintf("--quota-backend-bytes=%d", int64(sizeQuota)))
		c := &sized{Server: srv, plan: p, round: round}
		servers = append(servers, c)
		s.add(fmt.Sprintf("size: round %d, start %s, %s", round+1, srv.Name, name), startTime, func(ctx context.Context) (err error) {
			c.roles, err = s.start(ctx, &c.Server)
			return err
		})
	}
	for n, part := range parts {
		for _, i := range rotated(len(servers), round+n) {
			c := servers[i]
			s.add(fmt.Sprintf("size: round %d, %s, %s", round+1, part.name, c.Name), part.takes, func(ctx context.Context) error {
				return part.run(ctx, c)
			})
		}
	}
	s.add("size: find the leader again", 0, func(ctx context.Context) error {
		for _, c := range servers {
			s.stillLeads(ctx, report.Size, &c.Server, c.roles.Leader)
		}
		return nil
	})
	s.stop("size")
}
