package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/internal/tlstest"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// secured gives each member a certificate for its host, from files in a directory
// of its own.
type secured struct {
	t       *testing.T
	ca      *tlstest.Authority
	dirs    map[uint64]string
	sources map[uint64]*tlsconf.Source
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	return &secured{t: t, ca: tlstest.New(t, "ca"), dirs: make(map[uint64]string), sources: make(map[uint64]*tlsconf.Source)}
}

// apply is an adjustment for startNode.
func (s *secured) apply(cfg *Config, _ *limits) {
	s.t.Helper()
	id := cfg.Hello.From
	dir := s.t.TempDir()
	cert, key := s.ca.Issue([]string{hostOf(id)}).Write(dir, "own")
	source, err := tlsconf.New(tlsconf.Config{
		Peers: true, CertFile: cert, KeyFile: key, TrustedCAFile: tlstest.Write(s.t, dir, "ca", s.ca.PEM),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.dirs[id], s.sources[id] = dir, source
	cfg.Listener, cfg.Dial = source.Listener(cfg.Listener), source.Dialer(cfg.Dial)
	cfg.Authenticate = func(c net.Conn, h Hello) error {
		leaf, err := tlsconf.Leaf(c)
		if err == nil {
			err = leaf.VerifyHostname(hostOf(h.From))
		}
		return err
	}
}

// certificate is the pair as crypto/tls wants it.
func certificate(t *testing.T, p tlstest.Pair) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func trusting(ca *tlstest.Authority) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	return pool
}

// Members with certificates find each other; messages and a snapshot pass.
func TestOverTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t)
		_, a, b := pair(t, s.apply)
		settled()
		send(a, heartbeat(1, 2, 1), appendOf(1, 2, 1, make([]byte, 1<<20)))
		send(b, heartbeat(2, 1, 2))
		a.SendSnapshot(snapOf(1, 2, 9), &testState{data: randomBytes(5 << 20)})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(b.messages()) != 2 || len(a.messages()) != 1 || len(b.states()) != 1 {
			t.Errorf("%d, %d messages and %d snapshots arrived, want 2, 1 and 1", len(b.messages()), len(a.messages()), len(b.states()))
		}
		if v := a.snapshotResults(); len(v) != 1 || v[0] != nil {
			t.Errorf("SnapshotSent() got %v, want nil", v)
		}
	})
}

// Admit is not called for a connection without member 1's certificate.
func TestDiallersWithoutTheRightCertificate(t *testing.T) {
	for _, test := range []struct {
		name string
		cert func(ca, other *tlstest.Authority) *tlstest.Pair // nil: shows none
		want string                                           // how the connection ends
	}{
		{"its own", func(ca, _ *tlstest.Authority) *tlstest.Pair { return new(ca.Issue([]string{"n1"})) }, ""},
		{"none", nil, "certificate required"},
		{"another authority's", func(_, o *tlstest.Authority) *tlstest.Pair { return new(o.Issue([]string{"n1"})) }, "certificate"},
		{"expired", func(ca, _ *tlstest.Authority) *tlstest.Pair { return new(ca.Issue([]string{"n1"}, tlstest.Expired)) }, "expired certificate"},
		{"not for clients", func(ca, _ *tlstest.Authority) *tlstest.Pair {
			return new(ca.Issue([]string{"n1"}, tlstest.Only(x509.ExtKeyUsageServerAuth)))
		}, "bad certificate"},
		{"another member's", func(ca, _ *tlstest.Authority) *tlstest.Pair { return new(ca.Issue([]string{"n3"})) }, ReasonCertificate},
		{"for no host", func(ca, _ *tlstest.Authority) *tlstest.Pair { return new(ca.Issue(nil, tlstest.For("n1"))) }, ReasonCertificate},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, network := newSecured(t), memlink.New()
				admitted := 0
				startNode(t, network, &fakeNode{id: 2, admit: func(Hello) error { admitted++; return nil }}, s.apply)
				cfg := &tls.Config{RootCAs: trusting(s.ca), ServerName: "n2", NextProtos: []string{tlsconf.PeerProtocol}}
				if test.cert != nil {
					// The certificate does not depend on the authorities that the other end requests.
					shown := certificate(t, *test.cert(s.ca, tlstest.New(t, "other")))
					cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
				}
				raw := dialRaw(t, network, 1, 2)
				defer raw.Close()
				c := tls.Client(raw, cfg)
				end := outcome(c)
				if test.want == "" && (end != "" || admitted != 1) {
					t.Errorf("the connection ends with %q, Admit was called %d times, want it to stay", end, admitted)
				}
				if test.want != "" && (!strings.Contains(end, test.want) || admitted != 0) {
					t.Errorf("the connection ends with %q, Admit was called %d times, want an end with %q before that", end, admitted, test.want)
				}
			})
		})
	}
}

// outcome sends a hello as member 1 and returns the other end's answer.
func outcome(c net.Conn) string {
	// The other end may have closed the connection; its answer can still be read.
	failed := writePacket(c, byte(control)+1, helloTo(1, 2))
	p, err := readPacket(c, maxPayload)
	switch {
	case err != nil:
		return errors.Join(failed, err).Error()
	case p.kind == answerRefused:
		return decodeRefusal(2, p.payload).Reason
	default:
		return ""
	}
}

// Neither a hello nor a request for the member list is answered in plain text.
func TestPlainTextIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, network := newSecured(t), memlink.New()
		startNode(t, network, &fakeNode{id: 2, admit: func(Hello) error { t.Error("Admit() was called"); return nil }}, s.apply, func(c *Config, _ *limits) {
			c.MemberList = func() (MemberList, error) { return MemberList{ClusterID: testCluster}, nil }
		})
		c := dialRaw(t, network, 1, 2)
		defer c.Close()
		if end := outcome(c); end == "" {
			t.Error("a hello in plain text was answered")
		}
		if r, err := FetchMemberList(t.Context(), network.Dialer("n1"), addrOf(2)); err == nil {
			t.Errorf("FetchMemberList() in plain text = %+v, want an error", r)
		}
		stranger := newSecured(t)
		cfg := Config{Hello: helloOf(1), Dial: network.Dialer("n1")}
		stranger.apply(&cfg, nil)
		if r, err := FetchMemberList(t.Context(), cfg.Dial, addrOf(2)); err == nil {
			t.Errorf("FetchMemberList() with another authority's certificate = %+v, want an error", r)
		}
		cfg = Config{Hello: helloOf(1), Dial: network.Dialer("n1")}
		s.apply(&cfg, nil)
		if r, err := FetchMemberList(t.Context(), cfg.Dial, addrOf(2)); err != nil || r.ClusterID != testCluster {
			t.Errorf("FetchMemberList() with a certificate = %+v, %v, want the member list", r, err)
		}
	})
}

// A member does not connect to an acceptor without the peer's certificate.
func TestAcceptorsWithoutTheRightCertificate(t *testing.T) {
	for _, test := range []struct {
		name string
		cert func(ca, other *tlstest.Authority) tlstest.Pair
		want string
	}{
		{"its own", func(ca, _ *tlstest.Authority) tlstest.Pair { return ca.Issue([]string{"n2"}) }, ""},
		{"another authority's", func(_, o *tlstest.Authority) tlstest.Pair { return o.Issue([]string{"n2"}) }, "unknown authority"},
		{"expired", func(ca, _ *tlstest.Authority) tlstest.Pair { return ca.Issue([]string{"n2"}, tlstest.Expired) }, "expired"},
		{"not for servers", func(ca, _ *tlstest.Authority) tlstest.Pair {
			return ca.Issue([]string{"n2"}, tlstest.Only(x509.ExtKeyUsageClientAuth))
		}, "incompatible key usage"},
		{"another member's", func(ca, _ *tlstest.Authority) tlstest.Pair { return ca.Issue([]string{"n3"}) }, "not n2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, network := newSecured(t), memlink.New()
				ln, err := network.Listen(addrOf(2))
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				pair := test.cert(s.ca, tlstest.New(t, "other"))
				go impersonate(ln, &tls.Config{Certificates: []tls.Certificate{certificate(t, pair)}, NextProtos: []string{tlsconf.PeerProtocol}})
				a := startNode(t, network, &fakeNode{id: 1}, s.apply)
				a.SetPeer(2, []string{addrOf(2)})
				settled()
				p := a.peerOf(t, 2)
				if test.want == "" && !p.Connected {
					t.Errorf("Peers() = %+v, want connected", p)
				}
				if test.want != "" && (p.Connected || len(a.connections()) > 0 || !strings.Contains(p.LastError, test.want)) {
					t.Errorf("Peers() = connected %v, last error %q, want an error with %q", p.Connected, p.LastError, test.want)
				}
			})
		})
	}
}

// impersonate answers every hello as member 2.
func impersonate(ln net.Listener, cfg *tls.Config) {
	for {
		raw, err := ln.Accept()
		if err != nil {
			return
		}
		c := tls.Server(raw, cfg)
		p, err := readPacket(c, maxPayload)
		var h Hello
		if err == nil && json.Unmarshal(p.payload, &h) == nil {
			err = writePacket(c, answerOK, helloTo(2, h.From))
		}
		if err != nil {
			_ = raw.Close()
		}
	}
}

// If a dial leads to another host, for example through a proxy, neither the answer
// nor the refusal from there counts. A refusal may make a member stop.
func TestDialsThatLeadElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, network := newSecured(t), memlink.New()
		astray := func(cfg *Config, _ *limits) {
			cfg.Dial = s.sources[1].Dialer(network.Dialer("n1"))
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, addrOf(3)) }
		}
		a := startNode(t, network, &fakeNode{id: 1}, s.apply, astray)
		startNode(t, network, &fakeNode{id: 3}, s.apply)
		a.SetPeer(2, []string{addrOf(2)})
		settled()
		p := a.peerOf(t, 2)
		if p.Connected || len(a.refusals()) > 0 || !strings.Contains(p.LastError, "not authenticate as member 2") {
			t.Errorf("Peers() = connected %v, last error %q, %d refusals, want it not authenticate as member 2", p.Connected, p.LastError, len(a.refusals()))
		}
	})
}

// The certificates and then the authority change while members send messages. No
// message is lost. Later connections use the new certificates and refuse old ones.
func TestReloadUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecured(t)
		network, a, b := pair(t, s.apply)
		settled()
		sent := uint64(0)
		talk := func() {
			for range 100 {
				sent++
				send(a, heartbeat(1, 2, sent))
				time.Sleep(20 * time.Millisecond)
			}
		}
		old := s.ca
		next := tlstest.New(t, "next")
		both := append(append([]byte(nil), old.PEM...), next.PEM...)
		for _, step := range []func(id uint64){
			func(id uint64) { tlstest.Write(t, s.dirs[id], "ca", both) },
			func(id uint64) { next.Issue([]string{hostOf(id)}).Write(s.dirs[id], "own") },
			func(id uint64) { tlstest.Write(t, s.dirs[id], "ca", next.PEM) },
		} {
			for id := range s.dirs {
				step(id)
			}
			talk()
			before := len(b.messages())
			network.Reset("n1", "n2")
			settled()
			if !a.peerOf(t, 2).Connected || !b.peerOf(t, 1).Connected {
				t.Fatalf("after a change and a break: %q, %q, want both connected again", a.peerOf(t, 2).LastError, b.peerOf(t, 1).LastError)
			}
			talk()
			if n := len(b.messages()) - before; n != 100 {
				t.Errorf("%d messages arrived, want 100", n)
			}
		}
		for id, source := range s.sources {
			if st := source.Stats(); st.Reloads != 3 || st.Failures != 0 {
				t.Errorf("Stats() of member %d = %+v, want 3 reloads", id, st)
			}
		}
		shown := certificate(t, old.Issue([]string{"n1"}))
		c := tls.Client(dialRaw(t, network, 1, 2), &tls.Config{
			RootCAs: trusting(next), ServerName: "n2", NextProtos: []string{tlsconf.PeerProtocol},
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil },
		})
		defer c.Close()
		if end := outcome(c); !strings.Contains(end, "certificate") {
			t.Errorf("a certificate of the old authority: the connection ends with %q, want it refused", end)
		}
	})
}
