package transport

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/internal/tlstest"
)

// secretOf is the secret of a process, for use in tests.
func secretOf(process byte) Secret { return Secret{process} }

// processOf is the ID of that process.
func processOf(process byte) ProcessID {
	s := secretOf(process)
	return s.ProcessID()
}

// death is a process of a member that has died.
type death struct {
	member  uint64
	process ProcessID
}

// A death notice uses a TLS connection of its own. It replaces no stream of the dead
// process's member, so messages that the process sent are still read.
func TestDeathNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t)
		network, a, b := pair(t, s.apply)
		settled()
		connected := len(a.connections())
		if err := SendDeathNotice(t.Context(), s.sources[1].Dialer(network.Dialer(hostOf(1))), addrOf(2), 2, helloOf(1), secretOf(7)); err != nil {
			t.Fatal(err)
		}
		send(a, heartbeat(1, 2, 1))
		synctest.Wait()
		if died, _ := b.deaths(); !slices.Equal(died, []death{{1, processOf(7)}}) {
			t.Errorf("Died() was called with %v, want process 7 of member 1", died)
		}
		if n := len(b.messages()); n != 1 || b.goneCalls() != nil || b.totals.refusals != a.totals.refusals {
			t.Errorf("%d messages arrived afterwards, and Gone() was called for %v, want one message and no call", n, b.goneCalls())
		}
		settled()
		if n := len(a.connections()); n != connected {
			t.Errorf("%d connections were made afterwards, want none", n-connected)
		}
	})
}

// A notice is refused, with the reason, if the sender does not authenticate as the member or the notice is invalid.
func TestRefusedDeathNotices(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Hello, *Secret)
		host   string // of the sender's certificate; n1 by default
		admit  error
		reason string
		text   string
	}{
		{"another cluster", func(h *Hello, _ *Secret) { h.ClusterID = 0xbad }, "", nil, ReasonCluster, "this is cluster c1"},
		{"of the receiver itself", func(h *Hello, _ *Secret) { h.From = 2 }, "n2", nil, ReasonMember, "own"},
		{"of member 0", func(h *Hello, _ *Secret) { h.From = 0 }, "", nil, ReasonMember, "reserved"},
		{"without a secret", func(_ *Hello, s *Secret) { *s = Secret{} }, "", nil, ReasonOther, "no secret"},
		{"of another member", func(h *Hello, _ *Secret) { h.From = 3 }, "", nil, ReasonCertificate, "not authenticate as member 3"},
		{"with another's certificate", nil, "n3", nil, ReasonCertificate, "not authenticate as member 1"},
		{"of a removed member", nil, "", &Refusal{Reason: ReasonRemoved, Text: "gone since Tuesday"}, ReasonRemoved, "Tuesday"},
		{"with a long name", func(h *Hello, _ *Secret) { h.Name = strings.Repeat("x", maxName+1) }, "", nil, ReasonOther, "exceed the limit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, network := newSecured(t), memlink.New()
				shown := "n1"
				if c.host != "" {
					shown = c.host
				}
				startNode(t, network, &fakeNode{id: 1}, s.apply)
				s.ca.Issue([]string{shown}).Write(s.dirs[1], "own")
				b := startNode(t, network, &fakeNode{id: 2, admit: func(Hello) error { return c.admit }}, s.apply)
				time.Sleep(2 * time.Second) // the files are read again
				h, secret := helloOf(1), secretOf(7)
				if c.change != nil {
					c.change(&h, &secret)
				}
				err := SendDeathNotice(t.Context(), s.sources[1].Dialer(network.Dialer(hostOf(1))), addrOf(2), 2, h, secret)
				refused, ok := errors.AsType[*RefusedError](err)
				if !ok || refused.Reason != c.reason || !strings.Contains(refused.Text, c.text) {
					t.Errorf("SendDeathNotice() = %v, want reason %s with %q", err, c.reason, c.text)
				}
				if died, _ := b.deaths(); died != nil {
					t.Errorf("Died() was called with %v", died)
				}
			})
		})
	}
}

// A notice without a certificate of the authority, or above the limit of a hello, is not read.
func TestDeathNoticesFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, network := newSecured(t), memlink.New()
		b := startNode(t, network, &fakeNode{id: 2}, s.apply)
		if err := SendDeathNotice(t.Context(), network.Dialer("n1"), addrOf(2), 2, helloOf(1), secretOf(7)); err == nil {
			t.Error("a notice in plain text is accepted")
		}
		other := *s
		other.ca = tlstest.New(t, "other")
		startNode(t, network, &fakeNode{id: 1}, other.apply)
		if err := SendDeathNotice(t.Context(), s.sources[1].Dialer(network.Dialer("n1")), addrOf(2), 2, helloOf(1), secretOf(7)); err == nil {
			t.Error("a notice with another authority's certificate is accepted")
		}
		c := startNode(t, network, &fakeNode{id: 3})
		long := helloOf(1)
		long.Name = strings.Repeat("x", maxHello)
		if err := SendDeathNotice(t.Context(), network.Dialer("n1"), addrOf(3), 3, long, secretOf(7)); err == nil || c.totals.garbled.Load() != 1 {
			t.Errorf("a notice of more than 16 KiB is answered with %v, and counted as garbled %d times, want an error and 1", err, c.totals.garbled.Load())
		}
		for _, n := range []*fakeNode{b, c} {
			if died, _ := n.deaths(); died != nil {
				t.Errorf("Died() of member %d was called with %v", n.id, died)
			}
		}
	})
}

// A former version refuses the kind of packet. The call ends with its context if the receiver hangs.
func TestDeathNoticesToOtherReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memlink.New()
		startNode(t, network, &fakeNode{id: 2})
		c := dialRaw(t, network, 1, 2)
		defer c.Close()
		if p := speak(t, c, kindDeathNotice, helloTo(1, 2)); p.kind != answerRefused || decodeRefusal(2, p.payload).Reason != ReasonVersion {
			t.Errorf("the next kind is answered with %d %s, want a refusal for the version", p.kind, p.payload)
		}
		ln, err := network.Listen(addrOf(3))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := SendDeathNotice(ctx, network.Dialer("n1"), addrOf(3), 3, helloOf(1), secretOf(7)); err == nil || time.Since(began) != time.Second {
			t.Errorf("SendDeathNotice() to a member that hangs = %v after %v, want an error after a second", err, time.Since(began))
		}
	})
}

// Receive gets the process that the message's own connection named, not that of another connection.
func TestReceiveGetsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memlink.New()
		b := startNode(t, network, &fakeNode{id: 2})
		for i, process := range []ProcessID{processOf(7), {}, processOf(9)} {
			c := dialRaw(t, network, 1, 2)
			t.Cleanup(func() { _ = c.Close() })
			h := helloTo(1, 2)
			h.ProcessID = process
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
		if _, spoke := b.deaths(); !slices.Equal(spoke, []ProcessID{processOf(7), {}, processOf(9)}) {
			t.Errorf("messages came from the processes %x, want 7, none and 9", spoke)
		}
	})
}

// The process ID is in each hello, and in the list of peers to notify.
func TestHellosNameTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := make(chan ProcessID, 4) // two connections ask at the same time
		network := memlink.New()
		a := startNode(t, network, &fakeNode{id: 1}, func(cfg *Config, _ *limits) { cfg.Hello.ProcessID = processOf(7) })
		startNode(t, network, &fakeNode{id: 2, admit: func(h Hello) error { said <- h.ProcessID; return nil }})
		a.SetPeer(2, []string{addrOf(2)})
		settled()
		if len(said) != 2 || <-said != processOf(7) || <-said != processOf(7) {
			t.Error("want that control and bulk name process 7")
		}
		w := a.PeersToNotify()
		if w.Hello.ProcessID != processOf(7) || len(w.Peers) != 1 || w.Peers[0].ID != 2 || !slices.Equal(w.Peers[0].Addrs, []string{addrOf(2)}) {
			t.Errorf("PeersToNotify() = %+v, want member 2 at its address", w)
		}
	})
}

// The ID is the first half of the secret's SHA-256. All versions must agree on it.
func TestTheIDIsAHashOfTheSecret(t *testing.T) {
	const want = "66687aadf862bd776c8fc18b8e9f8e20" // of 32 zeros
	if id, _ := new(Secret).ProcessID().MarshalText(); string(id) != want {
		t.Errorf("ProcessID() of 32 zeros = %s, want %s", id, want)
	}
	if a, b := NewSecret(), NewSecret(); a == b || a.ProcessID() == b.ProcessID() {
		t.Errorf("NewSecret() = %x, twice", a)
	}
}

// A notice without a whole secret is refused, and so is the notice of former versions. A hello of a former version,
// with a number in place of the process ID, is accepted.
func TestOtherFormsOfDeathNotices(t *testing.T) {
	const digits = "0700000000000000000000000000000000000000000000000000000000000000"
	type notice map[string]any
	for _, c := range []struct {
		name  string
		kind  byte
		more  notice
		taken bool
	}{
		{"a secret", kindDeathNotice, notice{"secret": digits}, true},
		{"a secret, and a field that this version does not know", kindDeathNotice, notice{"secret": digits, "later": 1}, true},
		{"none", kindDeathNotice, nil, false},
		{"an empty one", kindDeathNotice, notice{"secret": ""}, false},
		{"a short one", kindDeathNotice, notice{"secret": digits[2:]}, false},
		{"a long one", kindDeathNotice, notice{"secret": digits + "00"}, false},
		{"one of other digits", kindDeathNotice, notice{"secret": "x" + digits[1:]}, false},
		{"a number", kindDeathNotice, notice{"secret": 7}, false},
		{"the ID", kindDeathNotice, notice{"secret": processOf(7)}, false},
		{"the ID in place of the secret", kindDeathNotice, notice{"process_id": processOf(7)}, false},
		{"the form of former versions", 201, notice{"process": 7}, false},
		{"the form of former versions with a secret", 201, notice{"process": 7, "secret": digits}, false},
		{"a hello of a former version", 1, notice{"process": 7}, true},
		{"a hello with an ID that is none", 1, notice{"process_id": "07"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := memlink.New()
				b := startNode(t, network, &fakeNode{id: 2})
				hello, _ := json.Marshal(helloTo(1, 2))
				payload := make(notice)
				must(json.Unmarshal(hello, &payload))
				maps.Copy(payload, c.more)
				conn := dialRaw(t, network, 1, 2)
				defer conn.Close()
				must(writePacket(conn, c.kind, payload))
				p, err := readPacket(conn, maxPayload)
				must(err)
				if taken := p.kind == answerOK; taken != c.taken {
					t.Errorf("it is answered with %d %s, want it taken: %v", p.kind, p.payload, c.taken)
				}
				var want []death
				if c.kind == kindDeathNotice && c.taken {
					want = []death{{1, processOf(7)}}
				}
				if died, _ := b.deaths(); !slices.Equal(died, want) {
					t.Errorf("Died() was called with %v, want %v", died, want)
				}
			})
		})
	}
}
