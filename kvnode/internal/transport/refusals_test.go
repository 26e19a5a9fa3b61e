package transport

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/memlink"
)

// Refusals reach the other side with the reason, again and again but slowly.
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
		{"a wiped member, wrapped", nil, fmt.Errorf("admit: %w", &Refusal{Reason: ReasonWiped, Text: "no data"}), ReasonWiped, "admit: no data"},
		{"an unknown reason", nil, &Refusal{Reason: "hair", Text: "too long"}, ReasonOther, "too long"},
		{"no reason", nil, errors.New("not today"), ReasonOther, "not today"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := memlink.New()
				a := begin(t, net, &fakeNode{id: 1}, func(cfg *Config, _ *limits) {
					if c.hello != nil {
						c.hello(&cfg.Hello)
					}
				})
				b := begin(t, net, &fakeNode{id: 2, admit: func(Hello) error { return c.admit }})
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

// Another member at the address, or a member of another cluster that lets
// everybody in, is no connection.
func TestDiallerChecksTheAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer Hello
		want   string
	}{
		{"another member", Hello{ClusterID: testCluster, From: 3, To: 1}, "member 3 answers, want member 2"},
		{"another cluster", Hello{ClusterID: 5, From: 2, To: 1}, "cluster 5"},
		{"an answer for somebody else", Hello{ClusterID: testCluster, From: 2, To: 9}, "for member 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := memlink.New()
				a := begin(t, net, &fakeNode{id: 1})
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

// A peer of another version is told both versions.
func TestVersionsAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		begin(t, net, &fakeNode{id: 1})
		c := dialRaw(t, net, 2, 1)
		defer c.Close()
		p, err := newPacket(byte(control)+1, helloTo(2, 1))
		must(err)
		p.version = 7
		if _, err := c.Write(p.wire()); err != nil {
			t.Fatal(err)
		}
		answer, err := readPacket(c, maxPayload)
		if err != nil {
			t.Fatal(err)
		}
		got := refusedBy(1, answer.payload)
		if answer.kind != answerRefused || got.Reason != ReasonVersion || !strings.Contains(got.Text, "version 7") || !strings.Contains(got.Text, "want 1") {
			t.Errorf("version 7 was answered with kind %d, %v, want a refusal naming 7 and 1", answer.kind, got)
		}
	})
}

// Addresses are tried in turn.
func TestAddressesAreTriedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		a := begin(t, net, &fakeNode{id: 1})
		begin(t, net, &fakeNode{id: 2})
		a.SetPeer(2, []string{"nowhere:1", "elsewhere:1", addrOf(2)})
		time.Sleep(200 * time.Millisecond)
		if p := a.peerOf(t, 2); !p.Connected {
			t.Errorf("Peers() = %+v, want connected", p)
		}
	})
}
