package server

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/tlstest"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// A member refuses each certificate that is no peer's, and one line of its log names the rule. The ID and the host are
// those of a member that was added.
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
		{"a client's", new(f.ca.Issue(hosts, tlstest.Only(x509.ExtKeyUsageClientAuth))), "must be good for serverAuth and clientAuth"},
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
				ClusterID: s.Node().ClusterID(), From: added.ID, To: s.Node().ID(), Instance: "x", PeerURLs: "https://" + host + ":1", Format: store.FormatNewest,
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

// saidLines is a log that tests read while it is written.
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
