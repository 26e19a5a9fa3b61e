package client

import (
	"cmp"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/endpointsharding"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
)

// policy is the name of the balancer.
const policy = "leaderlease_to_leader"

func init() { balancer.Register(builder{}) }

type builder struct{}

// Name implements balancer.Builder.
func (builder) Name() string { return policy }

// Build implements balancer.Builder. Connections are kept as in gRPC's round_robin.
func (builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return endpointsharding.NewBalancer(&conn{cc, newLeaderCache()}, opts, balancer.Get(pickfirst.Name).Build, endpointsharding.Options{})
}

// conn replaces gRPC's picker by one that knows the leader.
type conn struct {
	balancer.ClientConn
	known *leaderCache
}

// UpdateState implements balancer.ClientConn.
func (c *conn) UpdateState(s balancer.State) {
	p := &picker{known: c.known, fallback: s.Picker}
	names := make(map[string]bool)
	for _, child := range endpointsharding.ChildStatesFromPicker(s.Picker) {
		if len(child.Endpoint.Addresses) == 0 {
			continue
		}
		name := child.Endpoint.Addresses[0].Addr
		names[name] = true
		if child.State.ConnectivityState == connectivity.Ready {
			p.ready = append(p.ready, &endpoint{name, child.State.Picker, c.known})
		}
	}
	c.known.retain(names)
	s.Picker = p
	c.ClientConn.UpdateState(s)
}

// endpoint is a connected endpoint.
type endpoint struct {
	name   string
	picker balancer.Picker
	known  *leaderCache
}

// picker chooses an endpoint for each request.
type picker struct {
	known    *leaderCache
	ready    []*endpoint
	next     atomic.Uint64
	fallback balancer.Picker // used if no endpoint is ready
}

// Pick implements balancer.Picker.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if len(p.ready) == 0 {
		return p.fallback.Pick(info)
	}
	c, _ := info.Ctx.Value(callKey{}).(*call)
	e := p.choose(c != nil && c.toLeader)
	if c != nil {
		c.endpoint.Store(e)
	}
	return e.picker.Pick(info)
}

// choose returns the leader's endpoint, if the request goes to the leader and the endpoint is known, and else the next
// one in turn. A request to the leader skips an endpoint that has failed recently, unless it is the only one.
func (p *picker) choose(toLeader bool) *endpoint {
	if !toLeader {
		return p.nextInTurn()
	}
	state, now := p.known.state.Load(), time.Now()
	for _, e := range p.ready {
		if state.isLeader(e.name) && !state.failedRecently(e.name, now) {
			return e
		}
	}
	next := p.nextInTurn()
	if state.failedRecently(next.name, now) {
		return p.nextInTurn()
	}
	return next
}

func (p *picker) nextInTurn() *endpoint { return p.ready[p.next.Add(1)%uint64(len(p.ready))] }

// failurePause is how long an endpoint does not count as the leader's after a failed request. With a shorter pause,
// a stuck leader gets every request again, and each waits for its timeout.
const failurePause = time.Second

// leaderCache has the members and the leader that the responses on one gRPC connection have
// named. Pickers read it without a lock.
type leaderCache struct {
	mu    sync.Mutex // held to replace state
	state atomic.Pointer[leaderState]
}

// leaderState is immutable.
type leaderState struct {
	leader uint64
	// members has the ID of the member that has answered at each endpoint.
	members map[string]uint64
	// failing is the leader's endpoint at which a request failed. It does not count as the leader's before until.
	failing string
	until   time.Time
}

func newLeaderCache() *leaderCache {
	c := new(leaderCache)
	c.state.Store(&leaderState{})
	return c
}

// isLeader reports whether the named endpoint is the leader's.
func (s *leaderState) isLeader(name string) bool { return s.leader != 0 && s.members[name] == s.leader }

// failedRecently reports whether a request to the named endpoint has just failed.
func (s *leaderState) failedRecently(name string, now time.Time) bool {
	return s.failing == name && now.Before(s.until)
}

// recordAnswer records the member that has answered at an endpoint, and the leader that it names,
// 0 for none. The last answer wins. Terms are not compared, since they start again when a cluster
// is restored from a snapshot. An outdated answer sends requests to a former leader, which
// forwards them.
func (c *leaderCache) recordAnswer(name string, member, leader uint64) {
	state := c.state.Load()
	if member == 0 || state.members[name] == member && (leader == 0 || leader == state.leader) {
		return // the common case
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := *c.state.Load()
	next.members = maps.Clone(next.members)
	if next.members == nil {
		next.members = make(map[string]uint64)
	}
	next.members[name] = member
	next.leader = cmp.Or(leader, next.leader)
	c.state.Store(&next)
}

// recordFailure records that a request to an endpoint has failed, if the endpoint is the leader's.
func (c *leaderCache) recordFailure(name string, now time.Time) {
	if !c.state.Load().isLeader(name) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := *c.state.Load()
	next.failing, next.until = name, now.Add(failurePause)
	c.state.Store(&next)
}

// retain drops all endpoints except the named ones.
func (c *leaderCache) retain(names map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := *c.state.Load()
	next.members = maps.Clone(next.members)
	maps.DeleteFunc(next.members, func(name string, _ uint64) bool { return !names[name] })
	c.state.Store(&next)
}
