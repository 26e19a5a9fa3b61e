package transport

import (
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// processes are those that have connected as one member, the newest last.
type processes struct {
	all []process
	// returns counts connections of one that another had taken the place of.
	returns  int
	complain rate.Sometimes
}

type process struct{ name, remote string }

const (
	// maxProcesses is how many processes of one member are told apart.
	maxProcesses = 4
	// minReturns is how often a process must come back after another one. Less:
	// what a process that has ended had sent may be read after what its successor has.
	minReturns = 3
)

// notice sees whether two processes are one member: each takes the other's connections
// away, again and again, and neither would say why.
func (t *Transport) notice(in *inbound) {
	name, remote := in.hello.Log.Process, in.conn.RemoteAddr().String()
	if name == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.mu.processes[in.from]
	if p == nil {
		p = &processes{complain: rate.Sometimes{First: 1, Interval: 30 * time.Second}}
		t.mu.processes[in.from] = p
	}
	if other := p.arrive(process{name, remote}); other != "" && p.returns >= minReturns {
		p.complain.Do(func() {
			t.cfg.Logger.Error("a member connects from two addresses: two processes run with copies of its data directory, which may elect two leaders; stop one of them and remove its copy",
				"peer", t.cfg.Called(in.from), "addresses", []string{other, remote}, "peer_urls", shorten(in.hello.PeerURLs))
		})
	}
}

// arrive notes a connection, and returns where the process before it connected from.
func (p *processes) arrive(now process) (other string) {
	newest := len(p.all) - 1
	at := slices.IndexFunc(p.all, func(q process) bool { return q.name == now.name })
	if newest >= 0 && at == newest {
		return ""
	}
	if newest >= 0 {
		other = p.all[newest].remote
	}
	if at >= 0 {
		p.returns++
		p.all = slices.Delete(p.all, at, at+1)
	}
	p.all = append(p.all, now)
	if len(p.all) > maxProcesses {
		p.all = slices.Delete(p.all, 0, 1)
	}
	return other
}
