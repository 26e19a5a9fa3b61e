package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/internal/tlstest"
	"github.com/leaderlease/go/kvnode/internal/tlsconf"
)

// secured is a cluster with mutual TLS on all listeners.
type secured struct {
	*testcluster.Cluster
	t    *testing.T
	ca   *tlstest.Authority
	dir  string // of certificates
	http map[string]string
}

// newSecured lays out three members, each with a certificate of its own, and a certificate
// for clients. All members get the flags more.
func newSecured(t *testing.T, p testcluster.Program, more ...string) *secured {
	t.Helper()
	s := &secured{
		Cluster: newCluster(t, testcluster.Config{Program: p, Flags: more}), t: t,
		ca: tlstest.New(t, "ca"), dir: t.TempDir(), http: make(map[string]string),
	}
	tlstest.Write(t, s.dir, "ca.crt", s.ca.PEM)
	s.ca.Issue(nil, tlstest.For("root")).Write(s.dir, "client")
	for _, m := range s.Members() {
		s.http[m.Name] = freeAddr(t)
		m.Flags = slices.Concat(m.Flags, s.flags(m.Name))
		for i := range m.Flags {
			m.Flags[i] = strings.ReplaceAll(m.Flags[i], "http://", "https://")
		}
	}
	return s
}

// flags gives a member its certificate.
func (s *secured) flags(name string) []string {
	cert, key := s.ca.Issue([]string{"127.0.0.1"}).Write(s.dir, name)
	ca := filepath.Join(s.dir, "ca.crt")
	return []string{
		"--cert-file=" + cert, "--key-file=" + key, "--trusted-ca-file=" + ca, "--client-cert-auth",
		"--peer-cert-file=" + cert, "--peer-key-file=" + key, "--peer-trusted-ca-file=" + ca, "--peer-client-cert-auth",
		"--listen-client-http-urls=https://" + s.http[name],
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := testcluster.FreeAddr(t.Context())
	must(t, err)
	return addr
}

// run runs a program and returns what it prints.
func (s *secured) run(program string, args ...string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// shown returns etcdctl's flags for a certificate.
func (s *secured) shown(name string) []string {
	flags := []string{"--cacert=" + filepath.Join(s.dir, "ca.crt")}
	if name != "" {
		flags = append(flags, "--cert="+filepath.Join(s.dir, name+".crt"), "--key="+filepath.Join(s.dir, name+".key"))
	}
	return flags
}

func (s *secured) urls() string {
	var all []string
	for _, e := range s.Endpoints() {
		all = append(all, "https://"+e)
	}
	return strings.Join(all, ",")
}

func (s *secured) start() {
	s.t.Helper()
	must(s.t, s.Serve(deadline(s.t)))
}

// An unmodified etcdctl works with a certificate, and fails without one.
func TestEtcdctlWithMutualTLS(t *testing.T) {
	ctl := binaryPath(t, "etcdctl")
	p := onlyKvnode(t)
	s := newSecured(t, p, electsLate)
	s.start()
	etcdctl := func(certificate string, args ...string) (string, error) {
		flags := patient
		if certificate != "client" { // it is refused again and again
			flags = []string{"--command-timeout=5s"}
		}
		return s.run(ctl, slices.Concat([]string{"--endpoints=" + s.urls()}, flags, s.shown(certificate), args)...)
	}
	for _, step := range []struct{ line, want string }{
		{"put key value", "OK"},
		{"get key", "value"},
		{"get key --consistency=s", "value"},
		{"del key", "1"},
		{"endpoint health", "is healthy"},
		{"endpoint status -w table", "true"},
		{"endpoint hashkv", "https://"},
		{"member list", "started"},
		{"compaction 2", "compacted"},
		{"lease list", "found 0 leases"},
	} {
		if out, err := etcdctl("client", strings.Fields(step.line)...); err != nil || !strings.Contains(out, step.want) {
			t.Errorf("etcdctl %s = %s %v, want %q", step.line, out, err, step.want)
		}
	}
	// Requests that only the leader can answer are forwarded with TLS as well.
	out, err := etcdctl("client", "lease", "grant", "60")
	fields := strings.Fields(out)
	if err != nil || len(fields) < 2 {
		t.Fatalf("etcdctl lease grant = %s %v", out, err)
	}
	for _, m := range s.Members() {
		args := slices.Concat([]string{"--endpoints=https://" + m.Endpoint}, patient, s.shown("client"), []string{"lease", "keep-alive", "--once", fields[1]})
		if out, err := s.run(ctl, args...); err != nil || !strings.Contains(out, "keepalived") {
			t.Errorf("etcdctl lease keep-alive at %s = %s %v, want keepalived", m.Name, out, err)
		}
	}

	tlstest.New(t, "other").Issue(nil).Write(s.dir, "stranger")
	for _, certificate := range []string{"", "stranger"} {
		if out, err := etcdctl(certificate, "get", "key"); err == nil {
			t.Errorf("etcdctl get with certificate %q = %s, want it refused", certificate, out)
		}
	}
	args := slices.Concat([]string{"status", "--endpoints=" + s.urls()}, s.shown("client"))
	if out, err := s.run(p.Path, args...); err != nil || !strings.Contains(out, "leader") {
		t.Errorf("kvnode status = %s %v, want the leader", out, err)
	}
	if out, err := s.run(p.Path, "status", "--endpoints="+s.urls(), "--cacert="+filepath.Join(s.dir, "ca.crt")); err == nil {
		t.Errorf("kvnode status without a certificate = %s, want an error", out)
	}
}

// curl uses the JSON gateway with a certificate, and fails without one.
func TestCurlWithMutualTLS(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	s := newSecured(t, onlyKvnode(t), electsLate)
	s.start()
	ca, cert, key := filepath.Join(s.dir, "ca.crt"), filepath.Join(s.dir, "client.crt"), filepath.Join(s.dir, "client.key")
	for _, addr := range s.http {
		url := "https://" + addr
		out, err := s.run(curl, "-sS", "--cacert", ca, "--cert", cert, "--key", key, url+"/v3/kv/put", "-d", `{"key":"Zm9v","value":"YmFy"}`)
		if err != nil || !strings.Contains(out, `"revision"`) {
			t.Errorf("curl %s/v3/kv/put = %s %v, want a revision", url, out, err)
		}
		for _, path := range []string{"/v3/kv/put", "/health", "/metrics"} {
			if out, err := s.run(curl, "-sS", "--cacert", ca, url+path); err == nil {
				t.Errorf("curl %s%s without a certificate = %s, want it refused", url, path, out)
			}
		}
	}
}

// A member joins over TLS. A member with a certificate of an unknown authority does not.
func TestJoinWithMutualTLS(t *testing.T) {
	ctl := binaryPath(t, "etcdctl")
	p := onlyKvnode(t)
	s := newSecured(t, p, electsLate)
	s.start()
	peer, client := freeAddr(t), freeAddr(t)
	s.http["m4"] = freeAddr(t)
	args := slices.Concat([]string{"--endpoints=" + s.urls()}, patient, s.shown("client"), []string{"member", "add", "m4", "--peer-urls=https://" + peer, "--learner"})
	out, err := s.run(ctl, args...)
	if err != nil || !strings.Contains(out, "added as learner") {
		t.Fatalf("etcdctl member add = %s %v", out, err)
	}
	initial := []string{"m4=https://" + peer}
	for _, m := range s.Members() {
		initial = append(initial, fmt.Sprintf("%s=https://%s", m.Name, m.Peer))
	}
	flags := []string{
		"--name=m4", "--listen-peer-urls=https://" + peer, "--initial-advertise-peer-urls=https://" + peer,
		"--listen-client-urls=https://" + client, "--advertise-client-urls=https://" + client,
		"--initial-cluster=" + strings.Join(initial, ","), "--initial-cluster-state=existing", "--initial-cluster-token=e2e",
	}
	stranger := tlstest.New(t, "other")
	cert, key := stranger.Issue([]string{"127.0.0.1"}).Write(s.dir, "stranger")
	bad := slices.Concat(p.Args, flags, []string{
		"--data-dir=" + filepath.Join(s.dir, "bad"),
		"--cert-file=" + cert, "--key-file=" + key, "--peer-cert-file=" + cert, "--peer-key-file=" + key,
		"--peer-trusted-ca-file=" + tlstest.Write(t, s.dir, "other.crt", slices.Concat(stranger.PEM, s.ca.PEM)),
	})
	if out, err := s.run(p.Path, bad...); err == nil || !strings.Contains(out, "certificate") {
		t.Errorf("kvnode with a stranger's certificate = %s %v, want it refused for that", out, err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Path, slices.Concat(p.Args, flags, s.flags("m4"), []string{"--data-dir=" + filepath.Join(s.dir, "m4")})...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}()
	args = slices.Concat([]string{"--endpoints=" + s.urls()}, s.shown("client"), []string{"member", "list"})
	for ctx.Err() == nil {
		if out, _ = s.run(ctl, args...); strings.Contains(out, "started, m4") {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("etcdctl member list = %s, want m4 started: %s", out, log.String())
}

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

// certificates returns the certificates that a member shows to clients and to peers.
func certificates(t *testing.T, m *testcluster.Member) (seen []string) {
	t.Helper()
	for _, addr := range []string{m.Endpoint, m.Peer} {
		d := &tls.Dialer{Config: m.TLS.Clone()}
		d.Config.NextProtos = []string{"h2", tlsconf.PeerProtocol}
		d.Config.VerifyConnection = func(state tls.ConnectionState) error {
			seen = append(seen, string(state.PeerCertificates[0].Raw))
			return nil
		}
		// A peer without a certificate may be rejected later.
		if conn, err := d.DialContext(deadline(t), "tcp", addr); err == nil {
			must(t, conn.Close())
		} else if len(seen) == 0 {
			t.Fatal(err)
		}
	}
	return seen
}

// trust gives the members' clients the client certificate.
func (s *secured) trust() {
	s.t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(s.dir, "client.crt"), filepath.Join(s.dir, "client.key"))
	must(s.t, err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.ca.PEM) {
		s.t.Fatal("the authority's certificate cannot be read")
	}
	for _, m := range s.Members() {
		m.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots}
	}
}
