package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
)

// tlsServer returns the address of a server of HTTP/2 with TLS, and files with its authority
// and with a certificate and key for clients.
func tlsServer(t *testing.T, auth tls.ClientAuthType) (addr, ca, cert, key string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: auth} //nolint:gosec // it listens on loopback
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pair := s.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return s.Listener.Addr().String(), write("ca", "CERTIFICATE", s.Certificate().Raw),
		write("cert", "CERTIFICATE", pair.Certificate[0]), write("key", "PRIVATE KEY", der)
}

// An endpoint with the wrong scheme fails a command at once, whatever its timeout, and the error names
// the fix. etcdctl's variables are read, and flags override them.
func TestMismatchesEndACommandAtOnce(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plain := grpc.NewServer()
	go func() { _ = plain.Serve(l) }()
	t.Cleanup(plain.Stop)
	old := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(old.Close)
	open, _, cert, key := tlsServer(t, tls.NoClientCert)
	closed, closedCA, _, _ := tlsServer(t, tls.RequireAnyClientCert)

	for _, test := range []struct {
		name    string
		environ []string
		args    string
		want    string
	}{
		{"https where plain text is spoken", nil, "--endpoints https://" + l.Addr().String(), "give http://host:port"},
		{"http where TLS is asked for", nil, "--endpoints http://" + open, "asks for TLS: give https://"},
		{"no scheme where TLS is asked for", nil, "--endpoints " + open, "asks for TLS: give https://"},
		{"a port of HTTP/1", nil, "--endpoints " + old.Listener.Addr().String(), "speaks HTTP/1.1 and no gRPC"},
		{"no authority", nil, "--endpoints https://" + open, "with --cacert"},
		{"no client certificate", nil, "--endpoints https://" + closed + " --cacert " + closedCA, "give --cert and --key"},
		{"the variables", []string{"ETCDCTL_ENDPOINTS=https://" + closed, "ETCDCTL_CACERT=" + closedCA}, "", "give --cert and --key"},
		{"a flag wins", []string{"ETCDCTL_ENDPOINTS=https://" + closed, "ETCDCTL_CACERT=/nowhere"}, "--cacert " + closedCA, "give --cert and --key"},
		{"a variable that names no file", []string{"ETCDCTL_ENDPOINTS=https://" + open, "ETCDCTL_CACERT=/nowhere"}, "", "/nowhere"},
		{"all endpoints", nil, "--endpoints https://" + open + ",http://" + open, "asks for TLS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, command := range []string{"get k --timeout 1h", "snapshot save x --timeout 1h", "lock l --timeout 1h", "status --timeout 10s"} {
				if strings.HasPrefix(command, "snapshot") && test.name == "all endpoints" {
					continue // it takes one
				}
				var out, errs buffer
				code := run(System{
					Args: strings.Fields(command + " " + test.args), Environ: test.environ,
					Stdout: &out, Stderr: &errs, Exit: func(int) {},
				})
				if said := out.String() + errs.String(); code == exitOK || !strings.Contains(said, test.want) {
					t.Errorf("kvnode %s = %d %s, want %q", command, code, said, test.want)
				}
			}
		})
	}
	// A server that accepts the certificate is no gRPC server in this test, which is another error.
	var out, errs buffer
	code := run(System{
		Args: strings.Fields("get k --timeout 500ms"), Stdout: &out, Stderr: &errs, Exit: func(int) {},
		Environ: []string{"ETCDCTL_ENDPOINTS=https://" + closed, "ETCDCTL_CACERT=" + closedCA, "ETCDCTL_CERT=" + cert, "ETCDCTL_KEY=" + key},
	})
	if code != exitFailed || strings.Contains(errs.String(), "--cert") {
		t.Errorf("kvnode get with all of them = %d %s, want that the handshake succeeds", code, errs.String())
	}
}

func TestReflow(t *testing.T) {
	word := strings.Repeat("x", 30)
	text := word + " " + word + "\n" + word + "\n\n  indented " + word + word + word + "\nend"
	want := word + " " + word + "\n" + word + "\n\n  indented " + word + word + word + "\nend"
	if got := reflow(text); got != want {
		t.Errorf("reflow(%q) = %q, want %q", text, got, want)
	}
	if got := reflow("a\nb\n\nc"); got != "a b\n\nc" {
		t.Errorf("reflow() = %q, want lines of a paragraph joined", got)
	}
}
