package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/tlstest"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// forger speaks the members' protocol and is not a member.
type forger struct {
	*transport.Transport
	id  uint64
	met chan verdict
}

// verdict is a member's answer to the forger.
type verdict struct {
	member uint64
	err    error // nil if it was accepted
}

func (f *forger) Admit(transport.Hello) error                             { return nil }
func (f *forger) Receive(*raftpb.Message, transport.ProcessID)            {}
func (f *forger) Died(uint64, transport.ProcessID)                        {}
func (f *forger) ReceiveSnapshot(*raftpb.Message, int64, io.Reader) error { return nil }
func (f *forger) Unreachable(uint64)                                      {}
func (f *forger) Gone(uint64)                                             {}
func (f *forger) SnapshotSent(uint64, error)                              {}
func (f *forger) Refused(peer uint64, err error)                          { f.tell(verdict{peer, err}) }

func (f *forger) Connected(peer uint64, _ transport.Hello) { f.tell(verdict{peer, nil}) }

func (f *forger) tell(v verdict) {
	select {
	case f.met <- v:
	default: // there is room for the first of each
	}
}

// forge connects to all members with a certificate and sends a hello.
func forge(t *testing.T, f *files, shown tlstest.Pair, hello transport.Hello, all []*Server) *forger {
	t.Helper()
	dir := t.TempDir()
	side := tlsconf.Config{Peers: true, CertFile: f.cert, KeyFile: f.key, TrustedCAFile: f.in}
	side.ClientCertFile, side.ClientKeyFile = shown.Write(dir, "shown")
	source, err := tlsconf.New(side)
	if err != nil {
		t.Fatal(err)
	}
	fake := &forger{id: hello.From, met: make(chan verdict, 64)}
	fake.Transport, err = transport.Start(transport.Config{Hello: hello, Listener: ephemeral(t), Handler: fake, Dial: source.Dialer(nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fake.Close() })
	for _, s := range all {
		fake.SetPeer(s.Node().ID(), []string{s.cfg.Node.Listener.Addr().String()})
	}
	return fake
}

// append returns an entry after all of s's entries, from the leader of a much later term.
func (f *forger) append(t *testing.T, s *Server, key string) *raftpb.Message {
	t.Helper()
	data, err := (&store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte(key), Value: []byte("forged")}}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	last := s.Node().Store().Applied()
	return &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: &f.id, To: new(s.Node().ID()), Term: new(uint64(1000)),
		Index: &last, LogTerm: new(s.Node().Term()), Commit: new(last + 1),
		Entries: []*raftpb.Entry{{Index: new(last + 1), Term: new(uint64(1000)), Data: data}},
	}
}

// A certificate signed by the peers' authority does not make its owner a member. Messages in the
// name of an unknown member, or of one at another host, do not reach the log.
func TestASignedCertificateWritesNothing(t *testing.T) {
	f := newFiles(t)
	all := trio(t, f.mutual)
	cluster, member := all[0].Node().ClusterID(), all[0].Node().ID()
	const elsewhere = "127.0.0.2"
	for _, test := range []struct {
		name   string
		hosts  []string
		hello  transport.Hello
		reason string
	}{
		{"no host and no URL", nil, transport.Hello{From: 0x5a}, transport.ReasonUnknown},
		{"no host and a member's URL", nil, transport.Hello{From: 0x5b, PeerURLs: all[0].cfg.AdvertisePeerURLs[0]}, transport.ReasonUnknown},
		{"a host and a URL of its own", []string{elsewhere}, transport.Hello{From: 0x5c, PeerURLs: "https://" + elsewhere + ":1"}, transport.ReasonUnknown},
		{"a member's ID", []string{elsewhere}, transport.Hello{From: member, PeerURLs: "https://" + elsewhere + ":1"}, transport.ReasonCertificate},
	} {
		t.Run(test.name, func(t *testing.T) {
			victims := all
			if test.hello.From == member {
				victims = all[1:] // a member rejects its own ID in any case
			}
			test.hello.ClusterID, test.hello.Name, test.hello.Instance = cluster, "forger", "forged"
			fake := forge(t, f, f.ca.Issue(test.hosts), test.hello, victims)
			for seen := map[uint64]bool{}; len(seen) < len(victims); {
				v := fake.verdict(t)
				refused, _ := v.err.(*transport.RefusedError) //nolint:errorlint // it is handed over as it is
				if seen[v.member] {
					continue
				}
				seen[v.member] = true
				if refused == nil {
					t.Errorf("member %x has let it in", v.member)
				} else if refused.Reason != test.reason {
					t.Errorf("member %x refuses with %v, want %q", v.member, refused, test.reason)
				}
			}
			for _, s := range victims {
				fake.deliver(t, s, test.name)
			}
		})
	}
	for _, s := range all {
		if term := s.Node().Term(); term >= 1000 {
			t.Errorf("%s is in term %d, which the forger has made up", s.cfg.Node.Name, term)
		}
	}
}

func (f *forger) verdict(t *testing.T) verdict {
	t.Helper()
	select {
	case v := <-f.met:
		return v
	case <-time.After(patience):
		t.Fatal("a minute has passed, want that each member lets the forger in or refuses it")
		return verdict{}
	}
}

// deliver sends the forged entry while s has the forger connected, until s serves it.
func (f *forger) deliver(t *testing.T, s *Server, key string) {
	t.Helper()
	m := f.append(t, s, key)
	connected := func() bool {
		for _, p := range f.Peers() {
			if p.ID == m.GetTo() {
				return p.Connected
			}
		}
		return false
	}
	for deadline := time.Now().Add(5 * time.Second); connected() && time.Now().Before(deadline); {
		f.Send([]*raftpb.Message{m})
		if kv, _ := s.Node().Store().Get([]byte(key)); kv != nil {
			t.Errorf("%s serves %q", s.cfg.Node.Name, kv.GetValue())
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// lie sends a hello of an unknown member, and returns the answer.
func lie(ctx context.Context, cfg *tls.Config, addr string, hello transport.Hello) (string, error) {
	raw, err := say(ctx, cfg, addr, hello)
	if err != nil {
		return "", err
	}
	defer raw.Close()
	answer, err := io.ReadAll(raw)
	return string(answer), err
}

// say connects and sends a hello.
func say(ctx context.Context, cfg *tls.Config, addr string, hello transport.Hello) (net.Conn, error) {
	raw, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	payload, err := json.Marshal(hello)
	if err != nil {
		return nil, err
	}
	packet := append([]byte("llkv"), 0, 1, 1, 0)
	packet = binary.BigEndian.AppendUint32(packet, uint32(len(payload)))
	packet = append(packet, payload...)
	packet = binary.BigEndian.AppendUint32(packet, crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli)))
	_, err = raw.Write(packet)
	return raw, err
}

// Rejected hellos leave no link and no goroutine behind.
func TestLiesLeaveNothingBehind(t *testing.T) {
	f := newFiles(t)
	s := solo(t, f.mutual)
	<-s.Node().Published()
	goroutines := runtime.NumGoroutine()
	cfg := f.trusting(f.ca.Issue([]string{"127.0.0.2"}))
	cfg.ServerName, cfg.NextProtos = "127.0.0.1", []string{tlsconf.PeerProtocol}
	hello := transport.Hello{ClusterID: s.Node().ClusterID(), To: s.Node().ID(), Instance: strings.Repeat("x", 64), PeerURLs: "https://127.0.0.2:1"}
	const liars, lies = 8, 200
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range uint64(liars) {
		wg.Go(func() {
			h := hello
			for h.From = i + 1; h.From <= lies; h.From += liars {
				answer, err := lie(t.Context(), cfg, s.cfg.Node.Listener.Addr().String(), h)
				switch {
				case strings.Contains(answer, transport.ReasonUnknown):
					refused.Add(1)
				case err == nil && answer != "": // else there were too many at once
					t.Errorf("a lie is answered with %q, want a refusal for %q", answer, transport.ReasonUnknown)
					return
				}
			}
		})
	}
	wg.Wait()
	if refused.Load() == 0 {
		t.Errorf("none of %d lies was refused for %q", lies, transport.ReasonUnknown)
	}
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > goroutines+liars; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines run after %d lies, want about %d as before", runtime.NumGoroutine(), lies, goroutines)
		}
	}
}

// The start warns if one authority signs the certificates of both sides.
func TestOneAuthorityForBothIsSaid(t *testing.T) {
	f := newFiles(t)
	other := tlstest.New(t, "peers")
	cert, key := other.Issue(loopbackHosts).Write(f.dir, "peer")
	in := tlstest.Write(t, f.dir, "peers.crt", other.PEM)
	both := tlstest.Write(t, f.dir, "both.crt", append(append([]byte(nil), other.PEM...), f.ca.PEM...))
	for _, test := range []struct {
		name    string
		trusted string
		narrow  func(*tlsconf.Config)
		want    bool
	}{
		{"one of their own", in, func(*tlsconf.Config) {}, false},
		{"that of clients, too", both, func(*tlsconf.Config) {}, true},
		{"the same, narrowed by name", both, func(c *tlsconf.Config) { c.AllowedCNs = []string{"tlstest"} }, false},
		{"the same, narrowed by host", both, func(c *tlsconf.Config) { c.AllowedHostnames = loopbackHosts }, false},
	} {
		var log bytes.Buffer
		c := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		c.ClientTLS = tlsconf.Config{CertFile: f.cert, KeyFile: f.key, TrustedCAFile: f.in, Logger: c.Logger}
		c.PeerTLS = tlsconf.Config{Peers: true, CertFile: cert, KeyFile: key, TrustedCAFile: test.trusted, Logger: c.Logger}
		test.narrow(&c.PeerTLS)
		if _, err := c.certificates(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "an authority of their own"); got != test.want {
			t.Errorf("%s: it is said that there is one authority: %v, want %v: %s", test.name, got, test.want, log.String())
		}
	}
}

// A member rejects each certificate that is not a peer's, and one line of its log names the rule.
// ID and host are those of an added member.
func TestEachRefusalNamesTheRule(t *testing.T) {
	f, other := newFiles(t), tlstest.New(t, "other")
	const host = "127.0.0.2"
	hosts := []string{host}
	for _, test := range []struct {
		name  string
		shown *tlstest.Pair
		want  string
	}{
		{"no certificate", nil, "a peer must show a certificate"},
		{"of another authority", new(other.Issue(hosts)), "an authority in PeerTLS.TrustedCAFile must have signed"},
		{"expired", new(f.ca.Issue(hosts, tlstest.Expired)), "must be valid now"},
		{"for another host only", new(f.ca.Issue([]string{"127.0.0.3"})), "must be valid for a host of the member's registered peer URLs"},
		{"a client's", new(f.ca.Issue(hosts, tlstest.Only(x509.ExtKeyUsageClientAuth))), "must have the usages serverAuth and clientAuth"},
		{"the member's", new(f.ca.Issue(hosts)), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log saidLines
			s := solo(t, f.mutual, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			added, err := s.Node().AddMember(t.Context(), []string{"https://" + host + ":1"}, true)
			if err != nil {
				t.Fatal(err)
			}
			cfg := f.trusting()
			if test.shown != nil {
				cfg = f.trusting(*test.shown)
			}
			cfg.ServerName, cfg.NextProtos = "127.0.0.1", []string{tlsconf.PeerProtocol}
			hello := transport.Hello{
				ClusterID: s.Node().ClusterID(), From: added.ID, To: s.Node().ID(), Instance: "x", PeerURLs: "https://" + host + ":1", ClusterVersion: store.ClusterVersionNewest,
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if test.want == "" {
				answer := make([]byte, 1)
				conn, err := say(ctx, cfg, s.cfg.Node.Listener.Addr().String(), hello)
				if err == nil {
					defer conn.Close()
					_, err = conn.Read(answer)
				}
				if err != nil || log.count("peer refused") > 0 {
					t.Errorf("the member's own certificate: %v, want it accepted: %s", err, log.String())
				}
				return
			}
			for log.count(test.want) == 0 && ctx.Err() == nil { // another line may have used up the limit of lines
				_, _ = lie(ctx, cfg, s.cfg.Node.Listener.Addr().String(), hello)
				time.Sleep(10 * time.Millisecond)
			}
			if got := log.count(test.want); got == 0 {
				t.Errorf("no line says %q: %s", test.want, log.String())
			}
		})
	}
}

// saidLines is a log that can be read while it is written.
type saidLines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *saidLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *saidLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func (l *saidLines) count(what string) int { return strings.Count(l.String(), what) }
