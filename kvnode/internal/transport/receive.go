package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"go.etcd.io/raft/v3/raftpb"
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
