package transport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/memlink"
)

// speak does a dialler's handshake by hand.
func speak(t *testing.T, c net.Conn, kind stream, h Hello) packet {
	t.Helper()
	must(writePacket(c, byte(kind)+1, h))
	p, err := readPacket(c, maxPayload)
	must(err)
	return p
}

// Newer connections replace a connection while Receive blocks for its message. They
// are not read before Receive returns, so messages stay in order.
func TestOneReaderAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		stuck := make(chan struct{})
		b := startNode(t, net, &fakeNode{id: 2, receive: func(m *raftpb.Message) {
			if m.GetCommit() == 0 {
				<-stuck
			}
		}})
		release := sync.OnceFunc(func() { close(stuck) })
		t.Cleanup(release)
		for i := range uint64(4) {
			c := dialRaw(t, net, 1, 2)
			t.Cleanup(func() { _ = c.Close() })
			if p := speak(t, c, control, helloTo(1, 2)); p.kind != answerOK {
				t.Fatalf("connection %d was answered with kind %d, want %d", i, p.kind, answerOK)
			}
			frame, err := appendFrame(nil, heartbeat(1, 2, i))
			must(err)
			if _, err := c.Write(frame); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := b.messages(); len(got) != 0 {
				t.Fatalf("%v arrived while the first message was being handled", got)
			}
		}
		release()
		synctest.Wait()
		if got := b.messages(); len(got) != 2 || got[1].GetCommit() != 3 {
			t.Errorf("member 2 got %v, want the first message and that of the last connection", got)
		}
	})
}

// Admit is called again if the peer was removed meanwhile.
func TestRemovalOvertakesAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		n := &fakeNode{id: 2}
		calls := 0
		n.admit = func(Hello) error {
			if calls++; calls > 1 {
				return &Refusal{Reason: ReasonRemoved, Text: "removed"}
			}
			n.RemovePeer(1)
			return nil
		}
		startNode(t, net, n)
		c := dialRaw(t, net, 1, 2)
		defer c.Close()
		if p := speak(t, c, control, helloTo(1, 2)); p.kind != answerRefused {
			t.Errorf("answer of kind %d, want a refusal", p.kind)
		}
	})
}

// Hellos for which Admit is not called.
func TestInvalidHellosAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   stream
		change func(*Hello)
		reason string
		text   string
	}{
		{"another cluster", control, func(h *Hello) { h.ClusterID = 1 }, ReasonCluster, ""},
		{"for another member", control, func(h *Hello) { h.To = 3 }, ReasonMember, ""},
		{"from this member", control, func(h *Hello) { h.From = 2 }, ReasonMember, ""},
		{"from member 0", control, func(h *Hello) { h.From = 0 }, ReasonMember, ""},
		{"from a storage thread", control, func(h *Hello) { h.From = ^uint64(0) }, ReasonMember, ""},
		{"for an unknown stream", numStreams, func(*Hello) {}, ReasonVersion, ""},
		{"a long instance", control, func(h *Hello) { h.Instance = strings.Repeat("x", 65) }, ReasonOther, "instance: 65 bytes exceed the limit of 64"},
		{"a long name of a process", control, func(h *Hello) { h.Log.Boot = strings.Repeat("x", 65) }, ReasonOther, "boot: 65 bytes exceed the limit of 64"},
		{"a long name", control, func(h *Hello) { h.Name = strings.Repeat("x", 1025) }, ReasonOther, "name: 1025 bytes exceed the limit of 1024"},
		{"a long token", control, func(h *Hello) { h.Token = strings.Repeat("x", 1025) }, ReasonOther, "token: 1025 bytes exceed the limit of 1024"},
		{"long URLs", control, func(h *Hello) { h.PeerURLs = strings.Repeat("x", 8193) }, ReasonOther, "peer URLs: 8193 bytes exceed the limit of 8192"},
		{"many URLs", control, func(h *Hello) { h.PeerURLs = strings.Repeat(",", 64) }, ReasonOther, "peer URLs: 65 URLs exceed the limit of 64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := memlink.New()
				startNode(t, net, &fakeNode{id: 2, admit: func(h Hello) error {
					t.Errorf("Admit(%+v) was called", h)
					return nil
				}})
				conn := dialRaw(t, net, 1, 2)
				defer conn.Close()
				h := helloTo(1, 2)
				c.change(&h)
				p := speak(t, conn, c.kind, h)
				if r := decodeRefusal(2, p.payload); p.kind != answerRefused || r.Reason != c.reason || !strings.Contains(r.Text, c.text) {
					t.Errorf("answered with kind %d, %v, want a refusal for %q with %q", p.kind, r, c.reason, c.text)
				}
			})
		})
	}
}

// A hello with all fields at their limits is accepted. A larger packet is not read.
func TestHellosHaveALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memlink.New()
		b := startNode(t, network, &fakeNode{id: 2})
		greatest := helloTo(1, 2)
		greatest.Instance, greatest.PeerURLs = strings.Repeat("x", 64), strings.Repeat(","+strings.Repeat("x", 127), 64)[1:]
		greatest.Name, greatest.Token = strings.Repeat("x", 1024), strings.Repeat("x", 1024)
		c := dialRaw(t, network, 1, 2)
		defer c.Close()
		if p := speak(t, c, control, greatest); p.kind != answerOK {
			t.Errorf("the greatest hello was answered with kind %d, %q, want %d", p.kind, p.payload, answerOK)
		}
		greatest.Name = strings.Repeat("x", 16<<10)
		c = dialRaw(t, network, 1, 2)
		defer c.Close()
		_ = writePacket(c, byte(control)+1, greatest) // the other end has closed
		if p, err := readPacket(c, maxPayload); err == nil {
			t.Errorf("a hello of more than 16 KiB was answered with kind %d, want the connection closed", p.kind)
		}
		if n := b.totals.garbled.Load(); n != 1 {
			t.Errorf("%d hellos were garbled, want 1", n)
		}
	})
}

// A member that is refused as unknown tries again at least once a second: the peer is
// likely to learn soon that it was added.
func TestUnknownMembersTryAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, known := memlink.New(), time.Now().Add(time.Minute)
		a := startNode(t, network, &fakeNode{id: 1})
		startNode(t, network, &fakeNode{id: 2, admit: func(Hello) error {
			if time.Now().Before(known) {
				return &Refusal{Reason: ReasonUnknown, Text: "unknown"}
			}
			return nil
		}})
		a.SetPeer(2, []string{addrOf(2)})
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if !a.peerOf(t, 2).Connected {
			t.Error("a second after the peer admits it the member is not connected")
		}
		if n := len(a.refusals()); n < 58 || n > 125 {
			t.Errorf("%d attempts in a minute, want one or two a second", n)
		}
	})
}

// A connection without a hello is closed after 5 s. Above the limit the oldest one is
// closed at once.
func TestSilentConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memlink.New()
		b := startNode(t, network, &fakeNode{id: 2}, few)
		began := time.Now()
		var silent []net.Conn
		for range 6 {
			silent = append(silent, dialRaw(t, network, 1, 2))
		}
		synctest.Wait()
		if s := b.connLimit.Stats(); s.Evicted != 2 || s.Pending != 4 {
			t.Errorf("%+v of 6 connections, want 2 evicted and 4 pending", s)
		}
		for _, c := range silent {
			_ = c.SetReadDeadline(began.Add(time.Minute))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("a silent connection is open after a minute")
			}
			if d := time.Since(began); d > 5*time.Second {
				t.Errorf("a silent connection was closed after %v, want 5s", d)
			}
			_ = c.Close()
		}
	})
}

// Unreachable is called after a connection breaks, because the messages written last
// may be lost.
func TestBrokenConnectionIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, a, _ := pair(t)
		settled()
		before := len(a.unreachables())
		net.Reset("n1", "n2")
		synctest.Wait()
		if n := len(a.unreachables()); n == before {
			t.Error("Unreachable() was not called")
		}
		settled()
		if p := a.peerOf(t, 2); !p.Connected || p.Streams[control].Connects != 2 {
			t.Errorf("Peers() 50ms later = %+v, want connected again", p)
		}
	})
}

// Validate reports all errors.
func TestConfigIsValidated(t *testing.T) {
	_, err := Start(Config{})
	for _, want := range []string{"member ID", "cluster ID", "listener", "handler"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start() = %v, want it to name %q", err, want)
		}
	}
}

// Each attempt ends with a refusal and its reason. Attempts become less frequent.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		hello  func(*Hello)
		admit  error
		reason string
		text   string
	}{
		{"another cluster", func(h *Hello) { h.ClusterID = 0xbad }, nil, ReasonCluster, "this is cluster c1, not bad"},
		{"a removed member", nil, &Refusal{Reason: ReasonRemoved, Text: "gone since Tuesday"}, ReasonRemoved, "Tuesday"},
		{"a wiped member, wrapped", nil, fmt.Errorf("admit: %w", &Refusal{Reason: ReasonLostData, Text: "no data"}), ReasonLostData, "admit: no data"},
		{"an unknown reason", nil, &Refusal{Reason: "hair", Text: "too long"}, ReasonOther, "too long"},
		{"no reason", nil, errors.New("not today"), ReasonOther, "not today"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := memlink.New()
				a := startNode(t, net, &fakeNode{id: 1}, func(cfg *Config, _ *limits) {
					if c.hello != nil {
						c.hello(&cfg.Hello)
					}
				})
				b := startNode(t, net, &fakeNode{id: 2, admit: func(Hello) error { return c.admit }})
				a.SetPeer(2, []string{addrOf(2)})
				time.Sleep(time.Second)
				synctest.Wait()
				first := len(a.refusals())
				if first == 0 {
					t.Fatal("Refused() was not called")
				}
				got, ok := errors.AsType[*RefusedError](a.refusals()[0])
				if !ok || got.Peer != 2 || got.Reason != c.reason || !strings.Contains(got.Text, c.text) {
					t.Errorf("Refused() got %v, want reason %s, %q", got, c.reason, c.text)
				}
				if p := a.peerOf(t, 2); p.Connected || !strings.Contains(p.LastError, c.text) {
					t.Errorf("Peers() = %+v, want the refusal", p)
				}
				time.Sleep(20 * time.Second)
				if n := len(a.refusals()) - first; n < 3 || n > 9 {
					t.Errorf("%d refusals in 20s, want 3 to 9", n)
				}
				if n := b.totals.refusals[reasonIndex(c.reason)].Load(); n < 4 {
					t.Errorf("member 2 counted %d refusals, want at least 4", n)
				}
			})
		})
	}
}

// The dialler rejects the answer of another member, or of a member of another
// cluster.
func TestDiallerChecksTheAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer Hello
		want   string
	}{
		{"another member", Hello{ClusterID: testCluster, From: 3, To: 1}, "member 3 answers, want member 2"},
		{"another cluster", Hello{ClusterID: 5, From: 2, To: 1}, "cluster 5"},
		{"an answer for another member", Hello{ClusterID: testCluster, From: 2, To: 9}, "for member 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := memlink.New()
				a := startNode(t, net, &fakeNode{id: 1})
				ln, err := net.Listen(addrOf(2))
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					for {
						conn, err := ln.Accept()
						if err != nil {
							return
						}
						if _, err := readPacket(conn, maxPayload); err == nil {
							_ = writePacket(conn, answerOK, c.answer)
						}
					}
				}()
				a.SetPeer(2, []string{addrOf(2)})
				time.Sleep(time.Second)
				if p := a.peerOf(t, 2); p.Connected || !strings.Contains(p.LastError, c.want) {
					t.Errorf("Peers() = %+v, want %q", p, c.want)
				}
				if len(a.connections()) > 0 {
					t.Errorf("Connected() was called with %v", a.connections())
				}
				_ = ln.Close()
				a.RemovePeer(2)
			})
		})
	}
}

// The refusal of another version names both versions.
func TestVersionsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		startNode(t, net, &fakeNode{id: 1})
		c := dialRaw(t, net, 2, 1)
		defer c.Close()
		p, err := newPacket(byte(control)+1, helloTo(2, 1))
		must(err)
		p.version = 7
		_, err = c.Write(p.wire())
		must(err)
		answer, err := readPacket(c, maxPayload)
		must(err)
		got := decodeRefusal(1, answer.payload)
		if answer.kind != answerRefused || got.Reason != ReasonVersion || !strings.Contains(got.Text, "version 7") || !strings.Contains(got.Text, "want 1") {
			t.Errorf("version 7 was answered with kind %d, %v, want a refusal naming 7 and 1", answer.kind, got)
		}
	})
}

// Addresses are tried in turn.
func TestAddressesAreTriedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		a := startNode(t, net, &fakeNode{id: 1})
		startNode(t, net, &fakeNode{id: 2})
		a.SetPeer(2, []string{"nowhere:1", "elsewhere:1", addrOf(2)})
		time.Sleep(200 * time.Millisecond)
		if p := a.peerOf(t, 2); !p.Connected {
			t.Errorf("Peers() = %+v, want connected", p)
		}
	})
}
