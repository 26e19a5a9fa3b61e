package transport

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/internal/testcluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two members connect within milliseconds after their start. Messages arrive
// unchanged, including fields that raft does not know.
func TestMessagesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		m := heartbeat(1, 2, 7)
		m.ProtoReflect().SetUnknown([]byte("\xd2\xec\x22\x04\x01\x01\x05\x06")) // a probe of the lease library
		app := appendOf(1, 2, 1, []byte("x"))
		send(a, m, app)
		send(b, heartbeat(2, 1, 8))
		synctest.Wait()
		got := b.messages()
		if len(got) != 2 {
			t.Fatalf("member 2 got %d messages, want 2", len(got))
		}
		for _, g := range got {
			want := m
			if g.GetType() == app.GetType() {
				want = app
			}
			if !proto.Equal(g, want) || g == want {
				t.Errorf("member 2 got %v, want a copy of %v", g, want)
			}
		}
		if got := a.messages(); len(got) != 1 || got[0].GetCommit() != 8 {
			t.Errorf("member 1 got %v, want one heartbeat", got)
		}
		if h := a.connections(); len(h) != 1 || h[0] != helloTo(2, 1) {
			t.Errorf("Connected() was called with %v, want %v", h, helloTo(2, 1))
		}
		if p := a.peerOf(t, 2); !p.Connected || p.Sent != 2 || p.Lost != 0 || p.Hello.Name != "n2" {
			t.Errorf("Peers() = %+v, want connected, 2 sent, 0 lost", p)
		}
	})
}

func helloTo(from, to uint64) Hello {
	h := helloOf(from)
	h.To = to
	return h
}

// Flush returns when the message is written, so that it arrives even if Close follows.
// Without a peer it returns after its limit.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		a := startNode(t, net, &fakeNode{id: 1})
		a.SetPeer(2, []string{addrOf(2)})
		send(a, heartbeat(1, 2, 1))
		begun := time.Now()
		if a.Flush(2, 30*time.Millisecond) || time.Since(begun) != 30*time.Millisecond {
			t.Errorf("Flush() without a connection = true, or after %v, want false after 30ms", time.Since(begun))
		}
		if a.Flush(3, time.Hour) {
			t.Error("Flush() to a member that is not a peer = true, want false")
		}
		b := startNode(t, net, &fakeNode{id: 2})
		b.SetPeer(1, []string{addrOf(1)})
		settled()
		before := len(b.messages())
		send(a, heartbeat(1, 2, 2))
		if !a.Flush(2, time.Second) {
			t.Error("Flush() = false, want true")
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		settled()
		if got := b.messages(); len(got) != before+1 {
			t.Errorf("member 2 got %v, want one message more than %d", got, before)
		}
	})
}

// onLoopback starts members on real sockets.
func onLoopback(t *testing.T, nodes ...*fakeNode) {
	t.Helper()
	addrs := make(map[uint64]string)
	for _, n := range nodes {
		ln, err := testcluster.Listen(t.Context()) // one may listen on it again
		if err != nil {
			t.Fatal(err)
		}
		addrs[n.id] = ln.Addr().String()
		n.Transport, err = Start(Config{Hello: helloOf(n.id), Listener: ln, Handler: n})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.stop(t) })
	}
	for _, n := range nodes {
		for id, addr := range addrs {
			if id != n.id {
				n.SetPeer(id, []string{addr})
			}
		}
	}
}

// eventually polls, because sockets know no virtual time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a minute passed before %s", what)
		}
	}
}

// Three members on real sockets connect and exchange messages and a snapshot. A
// refusal arrives with its text. The others connect again to a member that restarts.
func TestOverTCP(t *testing.T) {
	var mu sync.Mutex
	var admit error
	nodes := []*fakeNode{{id: 1}, {id: 2}, {id: 3, admit: func(Hello) error {
		mu.Lock()
		defer mu.Unlock()
		return admit
	}}}
	admit = &Refusal{Reason: ReasonLostData, Text: "its data are gone"}
	began := time.Now()
	onLoopback(t, nodes...)
	a, b, c := nodes[0], nodes[1], nodes[2]
	eventually(t, "two members are connected", func() bool {
		return a.peerOf(t, 2).Connected && b.peerOf(t, 1).Connected
	})
	t.Logf("connected both ways after %v", time.Since(began))
	eventually(t, "the refusal arrives", func() bool {
		return len(a.refusals()) > 0 && len(b.refusals()) > 0
	})
	mu.Lock()
	admit = nil
	mu.Unlock()
	// Each stream was refused by itself, and tries again by itself.
	eventually(t, "the third member lets them in", func() bool {
		c := a.peerOf(t, 3)
		return c.Connected && c.Streams[bulk].Connected && b.peerOf(t, 3).Connected
	})
	for i := range uint64(100) {
		send(a, heartbeat(1, 2, i), heartbeat(1, 3, i), appendOf(1, 3, i+1, make([]byte, 10<<10)))
	}
	eventually(t, "messages arrive", func() bool { return len(b.messages()) == 100 && len(c.messages()) == 200 })
	data := randomBytes(5 << 20)
	a.SendSnapshot(snapOf(1, 2, 9), &testState{data: data})
	eventually(t, "the snapshot arrives", func() bool { return len(a.snapshotResults()) == 1 })
	if err := a.snapshotResults()[0]; err != nil || len(b.states()) != 1 {
		t.Errorf("SnapshotSent() got %v, want nil", err)
	}
	eventually(t, "a ping is answered", func() bool { return a.peerOf(t, 2).RTT > 0 })

	addr := c.cfg.Listener.Addr().String()
	c.stop(t)
	eventually(t, "the loss of the third member is noticed", func() bool { return !a.peerOf(t, 3).Connected })
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Start(Config{Hello: helloOf(3), Listener: ln, Handler: &fakeNode{id: 3}})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	eventually(t, "the third member is found again", func() bool { return a.peerOf(t, 3).Connected })
}

// The sender gets the receiver's error even if it is still writing: the receiver
// does not reset the connection before the error is read.
func TestEarlyAnswerOverTCP(t *testing.T) {
	full := &fakeNode{id: 2, snapshot: func(*raftpb.Message, int64, io.Reader) error { return io.ErrShortWrite }}
	a := &fakeNode{id: 1}
	onLoopback(t, a, full)
	a.SendSnapshot(snapOf(1, 2, 9), &testState{data: make([]byte, 32<<20)})
	eventually(t, "the verdict arrives", func() bool { return len(a.snapshotResults()) == 1 })
	want := "the peer rejected the snapshot: receive snapshot: short write"
	if err := a.snapshotResults()[0]; err == nil || err.Error() != want {
		t.Errorf("SnapshotSent() got %v, want %q", err, want)
	}
}

// The transport closes connections to a peer that accepts them and never answers,
// as a stopped process does. Other peers do not wait for it.
func TestSilentPeerOverTCP(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a := &fakeNode{id: 1}
	onLoopback(t, a)
	a.SetPeer(2, []string{ln.Addr().String()})
	for i := range uint64(10_000) {
		send(a, heartbeat(1, 2, i), appendOf(1, 2, i+1, make([]byte, 1<<10)))
	}
	if n, _ := a.peer(2).links[control].queue.usage(); n > 4096 {
		t.Errorf("%d messages are queued, want at most 4096", n)
	}
	eventually(t, "the node hears of it", func() bool { return len(a.unreachables()) > 0 })
}

// Latency and cost of a message over loopback.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{0, 256, 64 << 10} {
		b.Run("size="+strconv.Itoa(size), func(b *testing.B) {
			got := make(chan struct{}, 1<<20)
			rx := &counting{got: got}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			lb, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			a, err := Start(Config{Hello: helloOf(1), Listener: lb, Handler: &counting{}})
			if err != nil {
				b.Fatal(err)
			}
			defer a.Close()
			c, err := Start(Config{Hello: helloOf(2), Listener: ln, Handler: rx})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			a.SetPeer(2, []string{ln.Addr().String()})
			for !a.Peers()[0].Streams[bulk].Connected || !a.Peers()[0].Connected {
				time.Sleep(time.Millisecond)
			}
			m := heartbeat(1, 2, 1)
			if size > 0 {
				m = appendOf(1, 2, 1, make([]byte, size))
			}
			ms := []*raftpb.Message{m}
			b.ReportAllocs()
			const window = 64
			for range window {
				got <- struct{}{}
			}
			for b.Loop() {
				<-got
				a.Send(ms)
			}
		})
	}
}

// counting is a Handler that sends a token for each message.
type counting struct {
	fakeNode
	got chan struct{}
}

func (c *counting) Receive(*raftpb.Message, ProcessID) { c.got <- struct{}{} }
