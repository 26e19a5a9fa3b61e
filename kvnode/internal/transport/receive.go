package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/time/rate"
)

// readBuffer is what a connection reads at once.
const readBuffer = 64 << 10

// serve reads the stream to its end, and returns why that came.
func (in *inbound) serve() (err error) {
	if in.kind == snapshots {
		err = in.snapshot()
	} else {
		err = in.messages()
	}
	log := in.t.cfg.Logger.With("peer", in.t.cfg.Called(in.from), "stream", in.kind.String())
	if _, ok := errors.AsType[*InvalidError](err); ok {
		in.t.countsOf(in.from).invalid.Add(1) // it may have become a peer since it connected
		in.complain(func() { log.Error("peer sends what raft must not see", "error", err) })
		return err
	}
	if in.t.ctx.Err() == nil && !errors.Is(err, io.EOF) && !isClosed(err) {
		in.complain(func() { log.Warn("lost connection of peer", "error", err) })
	}
	return err
}

// complain logs about the peer, but not too often.
func (in *inbound) complain(f func()) {
	if p := in.t.peer(in.from); p != nil {
		p.complain.Do(f)
		return
	}
	f()
}

// messages hands the messages of the stream to the node.
func (in *inbound) messages() error {
	lim := &in.t.limits.streams[in.kind]
	r := bufio.NewReaderSize(&patient{conn: in.conn, limit: lim.ping + lim.timeout}, readBuffer)
	f := &frames{r: r}
	count := &in.counts.in[in.kind]
	for {
		m, size, err := f.next()
		if err != nil {
			return err
		}
		count.receivedBytes.Add(uint64(size))
		if m == nil {
			if err := in.pong(); err != nil {
				return err
			}
			continue
		}
		count.received.Add(1)
		if err := in.check(m); err != nil {
			return err
		}
		in.t.cfg.Handler.Receive(m, in.hello.ProcessID)
	}
}

// check reports why m must not reach the node.
func (in *inbound) check(m *raftpb.Message) error {
	if want := streamOf(m.GetType()); want != in.kind {
		return invalid(m, "stream", "came on the %s stream, want %s", in.kind, want)
	}
	return Validate(m, in.from, in.t.self)
}

func (in *inbound) pong() error {
	if err := in.conn.SetWriteDeadline(time.Now().Add(in.t.limits.streams[in.kind].write)); err != nil {
		return err
	}
	_, err := in.conn.Write(pong)
	return err
}

// patient is a connection on which each read may take a while, and no longer.
type patient struct {
	conn  net.Conn
	limit time.Duration
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(p.limit)); err != nil {
		return 0, err
	}
	n, err := p.conn.Read(b)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		err = fmt.Errorf("nothing arrived for %v: %w", p.limit, err)
	}
	return n, err
}

// gone tells the handler of a stream of messages that the peer has ended, if it was the
// last one. ctx has ended if this end has closed it, or the peer has connected anew.
func (in *inbound) gone(ctx context.Context, err error) {
	if in.kind == snapshots || ctx.Err() != nil || !endedByPeer(err) {
		return
	}
	in.t.leave(in)
	if !in.t.hears(in.from) {
		in.t.cfg.Handler.Gone(in.from)
	}
}

// hears reports whether a peer has a stream on which it sends messages.
func (t *Transport) hears(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.inbound[slot{id, control}] != nil || t.mu.inbound[slot{id, bulk}] != nil
}

// endedByPeer reports whether err says that the other end has ended a connection. TLS says
// it of a process that died by an end in the midst of a record. Timeouts do not say so, nor
// do connections that are closed here.
func endedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		slices.ContainsFunc(resets, func(reset error) bool { return errors.Is(err, reset) })
}

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
