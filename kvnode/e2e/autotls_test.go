package e2e

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// Members make self-signed certificates for clients and for each other. A client that skips
// verification is served. A client that verifies, or speaks plain text, is not.
func TestAutoTLS(t *testing.T) {
	ctl := binaryPath(t, "etcdctl")
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		s := &secured{Cluster: newCluster(t, testcluster.Config{Program: p, Flags: []string{electsLate, "--auto-tls", "--peer-auto-tls"}}), t: t}
		for _, m := range s.Members() {
			for i := range m.Flags {
				m.Flags[i] = strings.ReplaceAll(m.Flags[i], "http://", "https://")
			}
			m.TLS = &tls.Config{InsecureSkipVerify: true} // #nosec G402 -- it is self-signed
		}
		s.start()
		skip := []string{"--insecure-skip-tls-verify", "--insecure-transport=false"}
		for line, want := range map[string]string{"put key value": "OK", "endpoint health": "is healthy", "member list": "started", "get key --consistency=s": ""} {
			args := slices.Concat([]string{"--endpoints=" + s.urls()}, patient, skip, strings.Fields(line))
			if out, err := s.run(ctl, args...); err != nil || !strings.Contains(out, want) {
				t.Errorf("etcdctl %s = %s %v, want %q", line, out, err, want)
			}
		}
		for name, args := range map[string][]string{
			"a client that verifies": {"--endpoints=" + s.urls(), "--insecure-transport=false"},
			"plain text":             {"--endpoints=" + strings.Join(s.Endpoints(), ",")},
		} {
			if out, err := s.run(ctl, append(args, "--command-timeout=500ms", "get", "key")...); err == nil {
				t.Errorf("etcdctl get by %s = %s, want it refused", name, out)
			}
		}
		keepsCertificates(t, s)
	})
}

// keepsCertificates restarts a follower, so that no election delays the test: the member
// keeps the certificates that it has made.
func keepsCertificates(t *testing.T, s *secured) {
	t.Helper()
	leader, err := s.Leader(deadline(t))
	must(t, err)
	m := s.Members()[0]
	if m == leader {
		m = s.Members()[1]
	}
	before := certificates(t, m)
	must(t, m.Kill())
	must(t, m.Start())
	must(t, m.WaitReady(deadline(t)))
	if after := certificates(t, m); !slices.Equal(after, before) || before[0] == before[1] {
		t.Error("a member that was restarted shows other certificates, want one for clients and one for peers, as before")
	}
	must(t, m.Use(func(c *clientv3.Client) error { return putAndGet(deadline(t), c, "restarted") }))
}

// certificates returns those that a member shows to clients and to peers.
func certificates(t *testing.T, m *testcluster.Member) (seen []string) {
	t.Helper()
	for _, addr := range []string{m.Endpoint, m.Peer} {
		d := &tls.Dialer{Config: m.TLS.Clone()}
		d.Config.NextProtos = []string{"h2", tlsconf.PeerProtocol}
		d.Config.VerifyConnection = func(state tls.ConnectionState) error {
			seen = append(seen, string(state.PeerCertificates[0].Raw))
			return nil
		}
		// A peer that shows no certificate of its own may be sent away later.
		if conn, err := d.DialContext(deadline(t), "tcp", addr); err == nil {
			must(t, conn.Close())
		} else if len(seen) == 0 {
			t.Fatal(err)
		}
	}
	return seen
}
