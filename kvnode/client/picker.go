package client

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/endpointsharding"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
)

// policy is the name under which gRPC knows the balancer.
const policy = "leaderlease_to_leader"

func init() { balancer.Register(builder{}) }

type builder struct{}

// Name implements balancer.Builder.
func (builder) Name() string { return policy }

// Build implements balancer.Builder. Connections are kept as gRPC's round_robin keeps them.
func (builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return endpointsharding.NewBalancer(&conn{cc, newKnown()}, opts, balancer.Get(pickfirst.Name).Build, endpointsharding.Options{})
}

// conn puts a picker of its own before gRPC's.
type conn struct {
	balancer.ClientConn
	known *known
}

// UpdateState implements balancer.ClientConn.
func (c *conn) UpdateState(s balancer.State) {
	p := &picker{known: c.known, others: s.Picker}
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
	c.known.keep(names)
	s.Picker = p
	c.ClientConn.UpdateState(s)
}

// endpoint is one that has a connection.
type endpoint struct {
	name   string
	picker balancer.Picker
	known  *known
}

// picker chooses an endpoint for each request.
type picker struct {
	known  *known
	ready  []*endpoint
	next   atomic.Uint64
	others balancer.Picker // for when none is ready
}

// Pick implements balancer.Picker.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if len(p.ready) == 0 {
		return p.others.Pick(info)
	}
	c, _ := info.Ctx.Value(callKey{}).(*call)
	e := p.choose(c != nil && c.toLeader)
	if c != nil {
		c.via.Store(e)
	}
	return e.picker.Pick(info)
}

// choose returns the leader's endpoint, or the next in turn. One that has just failed has
// no turn of what is for the leader, unless it is the only one.
func (p *picker) choose(toLeader bool) *endpoint {
	if !toLeader {
		return p.turn()
	}
	f, now := p.known.now.Load(), time.Now()
	for _, e := range p.ready {
		if f.leads(e.name) && !f.rests(e.name, now) {
			return e
		}
	}
	next := p.turn()
	if f.rests(next.name, now) {
		return p.turn()
	}
	return next
}

func (p *picker) turn() *endpoint { return p.ready[p.next.Add(1)%uint64(len(p.ready))] }
