package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/time/rate"
)

// readBuffer is the size of a connection's read buffer.
const readBuffer = 64 << 10

// readStream reads the stream to its end, and returns the reason for the end.
func (in *inbound) readStream() (err error) {
	if in.kind == snapshots {
		err = in.receiveSnapshot()
	} else {
		err = in.readMessages()
	}
	log := in.t.cfg.Logger.With("peer", in.t.cfg.MemberName(in.from), "stream", in.kind.String())
	if _, ok := errors.AsType[*InvalidError](err); ok {
		in.t.countsOf(in.from).invalid.Add(1) // SetPeer may have added the peer since it connected
		in.logLimited(func() { log.Error("peer sent an invalid message", "error", err) })
		return err
	}
	if in.t.ctx.Err() == nil && !errors.Is(err, io.EOF) && !isClosed(err) {
		in.logLimited(func() { log.Warn("lost connection of peer", "error", err) })
	}
	return err
}

// logLimited calls f, which logs a line about the peer, within the peer's limit.
func (in *inbound) logLimited(f func()) {
	if p := in.t.peer(in.from); p != nil {
		p.logLimit.Do(f)
		return
	}
	f()
}

// readMessages passes the messages of the stream to the node.
func (in *inbound) readMessages() error {
	lim := &in.t.limits.streams[in.kind]
	r := bufio.NewReaderSize(&timeoutReader{conn: in.conn, limit: lim.ping + lim.timeout}, readBuffer)
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

// check returns an error if the node must not get m.
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

// timeoutReader limits the time of each read of a connection.
type timeoutReader struct {
	conn  net.Conn
	limit time.Duration
}

// Read fails if nothing arrives within limit.
func (p *timeoutReader) Read(b []byte) (int, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(p.limit)); err != nil {
		return 0, err
	}
	n, err := p.conn.Read(b)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		err = fmt.Errorf("nothing arrived for %v: %w", p.limit, err)
	}
	return n, err
}

// reportGone calls Handler.Gone if the peer has closed its last stream of messages.
// ctx has ended if this end closed the connection, or if the peer replaced it.
func (in *inbound) reportGone(ctx context.Context, err error) {
	if in.kind == snapshots || ctx.Err() != nil || !closedByPeer(err) {
		return
	}
	in.t.unregister(in)
	if !in.t.hasInbound(in.from) {
		in.t.cfg.Handler.Gone(in.from)
	}
}

// hasInbound reports whether a peer has a connected stream of messages.
func (t *Transport) hasInbound(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hasInboundLocked(id)
}

func (t *Transport) hasInboundLocked(id uint64) bool {
	return t.mu.inbound[slot{id, control}] != nil || t.mu.inbound[slot{id, bulk}] != nil
}

// closedByPeer reports whether err means that the other end closed the connection.
// If a process dies, TLS returns io.ErrUnexpectedEOF, the end within a record.
// Timeouts and connections that this end closed do not count.
func closedByPeer(err error) bool {
	const wsaECONNRESET = syscall.Errno(10054) // ECONNRESET on Windows; other systems have no error 10054
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, wsaECONNRESET)
}

// memberProcesses records the processes that have connected as one member.
type memberProcesses struct {
	all []seenProcess // the newest last
	// alternations counts connections of a known process that was not the last one to connect.
	alternations int
	logLimit     rate.Sometimes
}

type seenProcess struct{ name, remote string }

const (
	// maxProcesses is the number of processes recorded for each member.
	maxProcesses = 4
	// minAlternations is the number of alternations from which on the error is logged. One alternation proves
	// nothing: a late hello of a dead process may be read after the hello of its successor.
	minAlternations = 3
)

// detectDuplicate logs an error if two processes run as one member. Each of them
// replaces the connections of the other again and again. Neither can see the reason.
func (t *Transport) detectDuplicate(in *inbound) {
	name, remote := in.hello.Log.Boot, in.conn.RemoteAddr().String()
	if name == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.mu.processes[in.from]
	if p == nil {
		p = &memberProcesses{logLimit: rate.Sometimes{First: 1, Interval: 30 * time.Second}}
		t.mu.processes[in.from] = p
	}
	if other := p.observe(seenProcess{name, remote}); other != "" && p.alternations >= minAlternations {
		p.logLimit.Do(func() {
			t.cfg.Logger.Error("a member connects from two addresses: two processes run with copies of its data directory, which may elect two leaders; stop one of them and remove its copy",
				"peer", t.cfg.MemberName(in.from), "addresses", []string{other, remote}, "peer_urls", shorten(in.hello.PeerURLs))
		})
	}
}

// observe records a connection. If the previous connection was from another process,
// it returns the address of that process.
func (p *memberProcesses) observe(now seenProcess) (other string) {
	newest := len(p.all) - 1
	at := slices.IndexFunc(p.all, func(q seenProcess) bool { return q.name == now.name })
	if newest >= 0 && at == newest {
		return ""
	}
	if newest >= 0 {
		other = p.all[newest].remote
	}
	if at >= 0 {
		p.alternations++
		p.all = slices.Delete(p.all, at, at+1)
	}
	p.all = append(p.all, now)
	if len(p.all) > maxProcesses {
		p.all = slices.Delete(p.all, 0, 1)
	}
	return other
}
