package e2e

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/e2e/internal/load"
)

var resetsFlag = flag.Duration("resets", 2*time.Second, "for how long the connections between members are reset ten times a second; from 10 s on with kvnode's own election timeout")

// All connections between members are reset ten times a second, by real RSTs. Each reset is a hint
// that the other end has died, and they start at most one election. A write that was lost between a
// follower and the leader succeeds when it is proposed again.
func TestTenResetsASecond(t *testing.T) {
	links := &links{}
	cfg := testcluster.Config{Program: onlyKvnode(t), Own: links.between(t)}
	if *resetsFlag < 10*time.Second {
		cfg.Flags = []string{electsLate}
	}
	c := newCluster(t, cfg)
	must(t, c.Serve(deadline(t)))
	ctx, cancel := context.WithTimeout(t.Context(), *resetsFlag+patience)
	defer cancel()
	client, err := c.Client()
	must(t, err)
	defer client.Close()
	before, err := c.Members()[0].WaitStatus(ctx)
	must(t, err)

	reset, writes, again, most := 0, 0, 0, 0
	for began := time.Now(); ctx.Err() == nil && (time.Since(began) < *resetsFlag || reset < 12); time.Sleep(100 * time.Millisecond) {
		reset += links.reset()
		tries := 0
		for err = errors.New("not tried"); err != nil && ctx.Err() == nil; tries++ {
			try, cancel := context.WithTimeout(ctx, time.Second)
			_, err = client.Put(try, "k", "v")
			cancel()
		}
		writes, again, most = writes+1, again+tries-1, max(most, tries)
	}
	must(t, ctx.Err())
	after, err := c.Members()[0].WaitStatus(ctx)
	must(t, err)
	t.Logf("%d connections reset in %v; %d writes, tried again %d times, %d times at most; term %d, before %d", reset, *resetsFlag, writes, again, most-1, after.RaftTerm, before.RaftTerm)
	if after.RaftTerm > before.RaftTerm+1 {
		t.Errorf("%d elections, want one at most", after.RaftTerm-before.RaftTerm)
	}
	if reset < 12 {
		t.Errorf("only %d connections were there to be reset", reset)
	}
}

// links forwards the connections between members, at their advertised addresses.
type links struct {
	mu    sync.Mutex
	conns []*net.TCPConn
	isCut bool // nothing is forwarded
}

// between makes each member listen at another address, behind a link.
func (l *links) between(t *testing.T) func(*testcluster.Member) []string {
	return func(m *testcluster.Member) []string {
		at, err := net.ResolveTCPAddr("tcp", m.Peer)
		must(t, err)
		in, err := net.ListenTCP("tcp", at)
		must(t, err)
		t.Cleanup(func() { _ = in.Close(); l.reset() })
		to, err := net.ResolveTCPAddr("tcp", freeAddr(t))
		must(t, err)
		go l.serve(in, to)
		return []string{"--listen-peer-urls=http://" + to.String()}
	}
}

func (l *links) serve(in *net.TCPListener, to *net.TCPAddr) {
	for {
		a, err := in.AcceptTCP()
		if err != nil {
			return
		}
		b, err := net.DialTCP("tcp", nil, to)
		if err != nil {
			_ = a.Close()
			continue
		}
		l.join(a, b)
	}
}

func (l *links) join(a, b *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		_, _ = a.Close(), b.Close()
		return
	}
	l.conns = append(l.conns, a, b)
	forward := func(from, to *net.TCPConn) {
		_, err := io.Copy(to, from)
		if !errors.Is(err, net.ErrClosed) {
			_ = to.CloseWrite()
		}
	}
	go forward(a, b)
	go forward(b, a)
}

// reset ends all connections by an RST, and returns how many there were.
func (l *links) reset() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.conns) / 2
	for _, c := range l.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	l.conns = nil
	return n
}

// cut ends all connections, and refuses new ones until it is called with false.
func (l *links) cut(off bool) {
	l.mu.Lock()
	l.isCut = off
	l.mu.Unlock()
	if off {
		l.reset()
	}
}

var cutsFlag = flag.Int("cuts", 2, "how often all members are cut off from each other")

// All members are cut off from each other, for longer than a promise lasts, again and again. Half of
// the clients send by streams (package fastkv), and two of three reads are forwarded to the leader. The
// history is linearizable, and the clients go on when the members reconnect.
func TestCuts(t *testing.T) {
	links := &links{}
	c := newCluster(t, testcluster.Config{Program: onlyKvnode(t), Own: links.between(t), Flags: []string{electsSoon}})
	must(t, c.Serve(deadline(t)))
	l, err := load.Start(t.Context(), c.Members(), load.Config{
		Clients: 8, Slots: 5, KeyOps: 1000, Think: 3 * time.Millisecond, Timeout: 2 * time.Second, Seed: 1, Streams: true,
	})
	must(t, err)
	for range *cutsFlag {
		must(t, l.WaitProgress(deadline(t), progress))
		links.cut(true)
		time.Sleep(600 * time.Millisecond)
		links.cut(false)
	}
	must(t, l.WaitProgress(deadline(t), progress))
	history, err := l.Stop()
	must(t, err)
	final, err := load.Final(deadline(t), c.Members()[0])
	must(t, err)
	rep := linz.Check(history, final, 0)
	t.Log(rep)
	must(t, rep.Err())
}
