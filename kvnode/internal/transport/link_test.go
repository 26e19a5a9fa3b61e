package transport

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/memlink"
)

// settled lets members connect.
func settled() {
	time.Sleep(50 * time.Millisecond)
	synctest.Wait()
}

// A peer with a node that blocks on appends still receives heartbeats.
func TestHeartbeatsOvertakeAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		small := func(_ *Config, lim *limits) { lim.streams[bulk].bytes = 4 << 20 }
		a := startNode(t, net, &fakeNode{id: 1}, small)
		stuck := make(chan struct{})
		b := startNode(t, net, &fakeNode{id: 2, receive: func(m *raftpb.Message) {
			if m.GetType() == raftpb.MsgApp {
				<-stuck
			}
		}})
		release := sync.OnceFunc(func() { close(stuck) })
		t.Cleanup(release)
		connectAll(a, b)
		settled()
		for i := range uint64(100) {
			send(a, appendOf(1, 2, i+1, make([]byte, 64<<10)))
		}
		time.Sleep(time.Second)
		for i := range uint64(10) {
			send(a, heartbeat(1, 2, i))
			synctest.Wait()
			if got := b.messages(); uint64(len(got)) != i+1 {
				t.Fatalf("behind stuck appends %d heartbeats arrived, want %d", len(got), i+1)
			}
		}
		release()
		time.Sleep(time.Second)
	})
}

// Appends to a peer arrive in order, however they are batched.
func TestAppendsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, a, b := pair(t)
		net.Delay("n1", "n2", time.Millisecond)
		settled()
		const n = 3000
		for i := range uint64(n) {
			send(a, appendOf(1, 2, i+1, []byte("data")))
			if i%97 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		got := b.messages()
		if len(got) != n {
			t.Fatalf("%d appends arrived, want %d", len(got), n)
		}
		for i, m := range got {
			if m.GetIndex() != uint64(i) {
				t.Fatalf("append %d arrived as number %d", m.GetIndex(), i)
			}
		}
	})
}

// The messages to a peer that stops reading fill its queue and no other memory.
// Losses are counted. Unreachable is called a few times and after the last loss.
func TestStoppedPeerFillsItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, a, b := pair(t, func(_ *Config, lim *limits) { lim.streams[bulk].bytes = 4 << 20 })
		settled()
		net.Cut("n1", "n2")
		for i := range uint64(2000) {
			send(a, appendOf(1, 2, i+1, make([]byte, 64<<10)))
			if i%2 == 0 {
				time.Sleep(time.Millisecond)
			}
			if _, held := a.peer(2).links[bulk].queue.usage(); held > 4<<20 {
				t.Fatalf("queue holds %d bytes, want at most %d", held, 4<<20)
			}
		}
		last := time.Now()
		time.Sleep(150 * time.Millisecond)
		calledUntil(t, a.unreachables(), last)
		p := a.peerOf(t, 2)
		if bulk := p.Streams[bulk]; bulk.Lost < 1500 {
			t.Errorf("Lost = %d, want at least 1500", bulk.Lost)
		}
		// The control stream gives up if a ping has no answer for 5 s.
		time.Sleep(8 * time.Second)
		if p := a.peerOf(t, 2); p.Connected || !strings.Contains(p.LastError, "no answer to a ping") && !strings.Contains(p.LastError, "deadline") {
			t.Errorf("Peers() = %+v, want no connection and why", p)
		}
		net.HealAll()
		time.Sleep(5 * time.Second)
		if p := a.peerOf(t, 2); !p.Connected {
			t.Errorf("Peers() after healing = %+v, want connected", p)
		}
		// Only the messages in the queue and in the network arrive late.
		if n, limit := len(b.messages()), (4<<20+256<<10)/(64<<10)+1; n == 0 || n > limit {
			t.Errorf("%d appends were kept, want 1 to %d", n, limit)
		}
		before := len(b.messages())
		send(a, heartbeat(1, 2, 1))
		synctest.Wait()
		if got := len(b.messages()); got != before+1 {
			t.Errorf("%d messages arrived after healing, want 1", got-before)
		}
	})
}

// calledUntil expects Unreachable to be called about ten times a second, until the last loss.
func calledUntil(t *testing.T, calls []time.Time, last time.Time) {
	t.Helper()
	if n := len(calls); n < 5 || n > 12 {
		t.Errorf("Unreachable() was called %d times within a second, want about 10", n)
	}
	if n := len(calls); n > 0 && calls[n-1].Before(last.Add(-100*time.Millisecond)) {
		t.Errorf("last loss at %v, last call of Unreachable() at %v", last, calls[n-1])
	}
}

// Send returns at once even for peers without a connection. Control messages wait
// for the first connection: a member may respond to a vote before its own
// connection to the candidate exists.
func TestControlMessagesWaitForTheFirstConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		a := startNode(t, net, &fakeNode{id: 1})
		a.SetPeer(2, []string{addrOf(2)})
		time.Sleep(3 * time.Second)
		send(a, heartbeat(1, 2, 1), appendOf(1, 2, 1, nil)) // too early
		time.Sleep(time.Second)
		send(a, heartbeat(1, 2, 2), appendOf(1, 2, 2, nil))
		b := startNode(t, net, &fakeNode{id: 2})
		began := time.Now()
		b.SetPeer(1, []string{addrOf(1)})
		for len(a.connections()) == 0 {
			time.Sleep(time.Millisecond)
		}
		// Member 2's dialling wakes member 1, which had backed off to a second.
		if d := time.Since(began); d > 100*time.Millisecond {
			t.Errorf("way back opened after %v, want 100ms", d)
		}
		settled()
		if got := b.messages(); len(got) != 1 || got[0].GetCommit() != 2 {
			t.Errorf("member 2 got %v, want the second heartbeat", got)
		}
		if p := a.peerOf(t, 2); p.Lost != 3 {
			t.Errorf("Lost = %d, want 3", p.Lost)
		}
	})
}

// A message that is older than half of a promise renews no lease, and requests votes in an election that is over.
func TestControlMessagesWaitForHalfOfAPromise(t *testing.T) {
	for wait, want := range map[time.Duration]int{100 * time.Millisecond: 1, 150 * time.Millisecond: 0} {
		synctest.Test(t, func(t *testing.T) {
			net := memlink.New()
			a := startNode(t, net, &fakeNode{id: 1}, func(cfg *Config, _ *limits) { cfg.Hello.Promise = 250 * time.Millisecond })
			a.SetPeer(2, []string{addrOf(2)})
			send(a, heartbeat(1, 2, 1))
			time.Sleep(wait)
			b := startNode(t, net, &fakeNode{id: 2})
			b.SetPeer(1, []string{addrOf(1)})
			settled()
			if got := b.messages(); len(got) != want {
				t.Errorf("after %v member 2 got %v, want %d messages", wait, got, want)
			}
		})
	}
}

// RemovePeer ends connections both ways; the peer comes back only if admitted.
func TestRemovePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		var removed bool
		b := startNode(t, net, &fakeNode{id: 2})
		a := startNode(t, net, &fakeNode{id: 1, admit: func(Hello) error {
			if removed {
				return &Refusal{Reason: ReasonRemoved, Text: "removed"}
			}
			return nil
		}})
		connectAll(a, b)
		settled()
		removed = true
		a.RemovePeer(2)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if n := net.Connections("n1", "n2"); n != 0 {
			t.Errorf("%d connections are open, want 0", n)
		}
		if len(a.Peers()) != 0 {
			t.Errorf("Peers() = %v, want none", a.Peers())
		}
		if r := b.refusals(); len(r) == 0 {
			t.Error("member 2 got no refusal with reason removed")
		}
		send(a, heartbeat(1, 2, 1)) // member 2 is no peer any more
		if n := a.totals.unaddressed.Load(); n != 1 {
			t.Errorf("%d messages to members that are not peers, want 1", n)
		}
	})
}

// An invalid message ends the connection, is counted, and never reaches raft.
func TestInvalidMessagesEndTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		settled()
		bad := heartbeat(1, 2, 1)
		bad.Context = []byte("abc")
		send(a, heartbeat(1, 2, 1), bad)
		synctest.Wait()
		if got := b.messages(); len(got) != 1 {
			t.Errorf("member 2 got %v, want the message before the invalid one", got)
		}
		if p := b.peerOf(t, 1); p.Invalid != 1 {
			t.Errorf("Invalid = %d, want 1", p.Invalid)
		}
		time.Sleep(3 * time.Second)
		if p := a.peerOf(t, 2); !p.Connected || p.Streams[control].Connects != 2 {
			t.Errorf("Peers() = %+v, want connected for the 2nd time", p)
		}
	})
}

// A connection of member 1 carries messages of member 1 only.
func TestMessagesAreFromTheConnectedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		b := startNode(t, net, &fakeNode{id: 2})
		c := dialRaw(t, net, 1, 2)
		defer c.Close()
		if end := outcome(c); end != "" {
			t.Fatalf("the hello is answered with %q, want it to be welcome", end)
		}
		var frames []byte
		for _, from := range []uint64{1, 3} {
			var err error
			if frames, err = appendFrame(frames, heartbeat(from, 2, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Write(frames); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.messages(); len(got) != 1 || got[0].GetFrom() != 1 {
			t.Errorf("member 2 got %v, want only the messages from member 1", got)
		}
	})
}

// The transport sends a proposal that raft forwards for another member as this
// member's. It drops other forwarded messages.
func TestForwardedProposalsAreRestamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		settled()
		forward := func(kind raftpb.MessageType) *raftpb.Message {
			return &raftpb.Message{Type: &kind, From: new(uint64(3)), To: new(uint64(2)), Entries: []*raftpb.Entry{{Data: []byte("x")}}}
		}
		prop := forward(raftpb.MsgProp)
		send(a, prop, forward(raftpb.MsgReadIndex))
		synctest.Wait()
		if got := b.messages(); len(got) != 1 || got[0].GetFrom() != 1 || string(got[0].GetEntries()[0].GetData()) != "x" {
			t.Errorf("member 2 got %v, want the proposal in member 1's name", got)
		}
		if prop.GetFrom() != 3 {
			t.Error("the message itself was changed")
		}
		if p := a.peerOf(t, 2); p.Lost != 1 || !p.Connected {
			t.Errorf("Peers() = %+v, want 1 lost", p)
		}
	})
}

// A message beyond the limit is lost. The connection remains usable.
func TestOversizedMessageIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		settled()
		send(a, appendOf(1, 2, 1, make([]byte, MaxMessageBytes)), appendOf(1, 2, 1, make([]byte, MaxMessageBytes-100)))
		time.Sleep(time.Second)
		if got := b.messages(); len(got) != 1 {
			t.Errorf("member 2 got %d messages, want 1", len(got))
		}
		if p := a.peerOf(t, 2); p.Lost != 1 || p.Streams[bulk].Connects != 1 {
			t.Errorf("Peers() = %+v, want 1 lost and 1 connect", p)
		}
	})
}
