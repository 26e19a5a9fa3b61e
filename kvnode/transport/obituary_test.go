package transport

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/kvnode/tlsconf/tlstest"
	"github.com/leaderlease/go/kvnode/transport/memlink"
)

// dying is a process of member id in an obituary.
func dying(id, process uint64) Hello {
	h := helloOf(id)
	h.Process = process
	return h
}

// An obituary comes over a connection of its own, secured as all are, and takes no place of the
// streams of the member that it is about: what the dead process had sent is still read.
func TestObituariesAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t)
		network, a, b := pair(t, s.apply)
		settled()
		connected := len(a.connections())
		if err := Bury(t.Context(), s.sources[1].Dialer(network.Dialer(hostOf(1))), addrOf(2), 2, dying(1, 7)); err != nil {
			t.Fatal(err)
		}
		send(a, heartbeat(1, 2, 1))
		synctest.Wait()
		if died, _ := b.dead(); !slices.Equal(died, [][2]uint64{{1, 7}}) {
			t.Errorf("Died() was called with %v, want process 7 of member 1", died)
		}
		if n := len(b.got()); n != 1 || b.left() != nil || b.totals.refusals != a.totals.refusals {
			t.Errorf("%d messages arrived afterwards, and %v was gone, want one and nobody", n, b.left())
		}
		settled()
		if n := len(a.connections()); n != connected {
			t.Errorf("%d connections were made afterwards, want none: the streams that there were still are", n-connected)
		}
	})
}

// Whoever is not known to be that member, or says what no guardian does, is not believed, and told why.
func TestObituariesThatAreNotBelieved(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Hello)
		host   string // whose certificate is shown; n1's by default
		admit  error
		reason string
		text   string
	}{
		{"another cluster", func(h *Hello) { h.ClusterID = 0xbad }, "", nil, ReasonCluster, "this is cluster c1"},
		{"of the one it is told to", func(h *Hello) { h.From = 2 }, "n2", nil, ReasonMember, "own"},
		{"of nobody", func(h *Hello) { h.From = 0 }, "", nil, ReasonMember, "reserved"},
		{"of no process", func(h *Hello) { h.Process = 0 }, "", nil, ReasonOther, "names no process"},
		{"of another member", func(h *Hello) { h.From = 3 }, "", nil, ReasonCertificate, "not known to be member 3"},
		{"with another's certificate", nil, "n3", nil, ReasonCertificate, "not known to be member 1"},
		{"of a removed member", nil, "", &Refusal{Reason: ReasonRemoved, Text: "gone since Tuesday"}, ReasonRemoved, "Tuesday"},
		{"with a long name", func(h *Hello) { h.Name = strings.Repeat("x", maxName+1) }, "", nil, ReasonOther, "exceed the limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, network := newSecured(t), memlink.New()
				shown := "n1"
				if c.host != "" {
					shown = c.host
				}
				begin(t, network, &fakeNode{id: 1}, s.apply)
				s.ca.Issue([]string{shown}).Write(s.dirs[1], "own")
				b := begin(t, network, &fakeNode{id: 2, admit: func(Hello) error { return c.admit }}, s.apply)
				time.Sleep(2 * time.Second) // the files are read again
				h := dying(1, 7)
				if c.change != nil {
					c.change(&h)
				}
				err := Bury(t.Context(), s.sources[1].Dialer(network.Dialer(hostOf(1))), addrOf(2), 2, h)
				refused, ok := errors.AsType[*RefusedError](err)
				if !ok || refused.Reason != c.reason || !strings.Contains(refused.Text, c.text) {
					t.Errorf("Bury() = %v, want reason %s with %q", err, c.reason, c.text)
				}
				if died, _ := b.dead(); died != nil {
					t.Errorf("Died() was called with %v", died)
				}
			})
		})
	}
}

// A stranger without a certificate is not listened to, nor is one that says more than a hello may have.
func TestObituariesOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, network := newSecured(t), memlink.New()
		b := begin(t, network, &fakeNode{id: 2}, s.apply)
		if err := Bury(t.Context(), network.Dialer("n1"), addrOf(2), 2, dying(1, 7)); err == nil {
			t.Error("an obituary in plain text is believed")
		}
		other := *s
		other.ca = tlstest.New(t, "other")
		begin(t, network, &fakeNode{id: 1}, other.apply)
		if err := Bury(t.Context(), s.sources[1].Dialer(network.Dialer("n1")), addrOf(2), 2, dying(1, 7)); err == nil {
			t.Error("an obituary is believed that another authority's certificate comes with")
		}
		c := begin(t, network, &fakeNode{id: 3})
		long := dying(1, 7)
		long.Name = strings.Repeat("x", maxHello)
		if err := Bury(t.Context(), network.Dialer("n1"), addrOf(3), 3, long); err == nil || c.totals.garbled.Load() != 1 {
			t.Errorf("an obituary of more than 16 KiB is answered with %v, and was garbled %d times", err, c.totals.garbled.Load())
		}
		for _, n := range []*fakeNode{b, c} {
			if died, _ := n.dead(); died != nil {
				t.Errorf("Died() of member %d was called with %v", n.id, died)
			}
		}
	})
}

// A member of a former version refuses what it does not know; one that hangs is not waited for.
func TestObituariesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memlink.New()
		begin(t, network, &fakeNode{id: 2})
		c := dialRaw(t, network, 1, 2)
		defer c.Close()
		if p := speak(t, c, kindObituary, dying(1, 7)); p.kind != answerRefused || refusedBy(2, p.payload).Reason != ReasonVersion {
			t.Errorf("a kind that is one above that of obituaries is answered with %d %s, want it refused for its version", p.kind, p.payload)
		}
		ln, err := network.Listen(addrOf(3))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := Bury(ctx, network.Dialer("n1"), addrOf(3), 3, dying(1, 7)); err == nil || time.Since(began) != time.Second {
			t.Errorf("Bury() of who hangs = %v after %v, want an error after a second", err, time.Since(began))
		}
	})
}

// What is read from a connection comes with the process of that connection, whatever others say meanwhile. Only
// streams of messages name it.
func TestMessagesComeWithTheirProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memlink.New()
		b := begin(t, network, &fakeNode{id: 2})
		for i, process := range []uint64{7, 0, 9} {
			c := dialRaw(t, network, 1, 2)
			t.Cleanup(func() { _ = c.Close() })
			h := helloTo(1, 2)
			h.Process = process
			kind := control
			if i == 2 {
				kind = bulk
			}
			speak(t, c, kind, h)
			m := heartbeat(1, 2, uint64(i))
			if kind == bulk {
				m = appendOf(1, 2, 1, []byte("x"))
			}
			frame, err := appendFrame(nil, m)
			must(err)
			if _, err := c.Write(frame); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if _, spoke := b.dead(); !slices.Equal(spoke, []uint64{7, 0, 9}) {
			t.Errorf("messages came from the processes %v, want 7, 0 and 9", spoke)
		}
	})
}

// A member that has a process says so to whom it sends messages, and to nobody else: not in answers.
func TestOnlyStreamsOfMessagesNameTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []Hello
		network := memlink.New()
		a := begin(t, network, &fakeNode{id: 1}, func(cfg *Config, _ *limits) { cfg.Hello.Process = 7 })
		b := begin(t, network, &fakeNode{id: 2, admit: func(h Hello) error { said = append(said, h); return nil }})
		a.SetPeer(2, []string{addrOf(2)})
		settled()
		a.SendSnapshot(snapOf(1, 2, 9), &testState{data: randomBytes(5)})
		settled()
		b.SetPeer(1, []string{addrOf(1)})
		settled()
		var processes []uint64
		for _, h := range said {
			processes = append(processes, h.Process)
		}
		if !slices.Equal(processes, []uint64{7, 7, 0}) {
			t.Errorf("control, bulk and snapshot name the processes %v, want 7, 7 and 0", processes)
		}
		if p := b.peerOf(t, 1); !p.Connected || p.Hello.Process != 0 {
			t.Errorf("it answers %+v, want no process", p.Hello)
		}
		if w := a.Will(); w.Hello.Process != 7 || len(w.Peers) != 1 || w.Peers[0].ID != 2 || !slices.Equal(w.Peers[0].Addrs, []string{addrOf(2)}) {
			t.Errorf("Will() = %+v, want member 2 at its address", w)
		}
	})
}
