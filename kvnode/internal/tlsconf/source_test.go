package tlsconf

import (
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/tlstest"
)

// Invalid files are logged once and counted, and the ones before stay in use. Valid files are used
// again.
func TestInvalidFiles(t *testing.T) {
	for name, spoil := range map[string]func(k *kit){
		"garbage":           func(k *kit) { tlstest.Write(k.t, k.dir, "own.crt", []byte("garbage")) },
		"an empty file":     func(k *kit) { tlstest.Write(k.t, k.dir, "own.key", nil) },
		"no file":           func(k *kit) { _ = os.Remove(k.cfg.CertFile) },
		"another's":         func(k *kit) { tlstest.New(k.t, "other").Issue([]string{"server"}).Write(k.dir, "own") },
		"another's key":     func(k *kit) { tlstest.Write(k.t, k.dir, "own.key", k.ca.Issue(nil).Key) },
		"an expired one":    func(k *kit) { k.ca.Issue([]string{"server"}, tlstest.Expired).Write(k.dir, "own") },
		"no authority":      func(k *kit) { tlstest.Write(k.t, k.dir, "ca", []byte("# none\n")) },
		"a key for one":     func(k *kit) { tlstest.Write(k.t, k.dir, "ca", k.ca.Issue(nil).Key) },
		"a list of nobody":  func(k *kit) { tlstest.Write(k.t, k.dir, "crl", tlstest.New(k.t, "other").Revoke()) },
		"an empty list":     func(k *kit) { tlstest.Write(k.t, k.dir, "crl", []byte("x")) },
		"another authority": func(k *kit) { tlstest.Write(k.t, k.dir, "ca", tlstest.New(k.t, "other").PEM) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKit(t).mutual()
				k.cfg.Peers = true
				k.cfg.CRLFile = tlstest.Write(t, k.dir, "crl", k.ca.Revoke())
				var log bytes.Buffer
				k.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				s := k.source()
				files := snapshot(t, k.dir)
				before := s.loaded.Load()

				spoil(k)
				for range 5 {
					time.Sleep(2 * time.Second)
					if got := s.current(); got != before {
						t.Fatal("the bad files are in use, want the old ones")
					}
				}
				if st := s.Stats(); st.Failures != 1 || st.Reloads != 0 || !st.NotAfter.Equal(before.server.Leaf.NotAfter) {
					t.Errorf("Stats() = %+v, want one failure", st)
				}
				if n := strings.Count(log.String(), "cannot be reloaded"); n != 1 {
					t.Errorf("the log has %d lines about it, want 1: %s", n, log.String())
				}

				for path, data := range files {
					if err := os.WriteFile(path, data, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				k.ca.Issue([]string{"server"}).Write(k.dir, "own")
				time.Sleep(2 * time.Second)
				if got := s.current(); got == before {
					t.Error("the old certificate is in use, want the new one")
				}
				if st := s.Stats(); st.Failures != 1 || st.Reloads != 1 {
					t.Errorf("Stats() = %+v, want one failure and one reload", st)
				}
			})
		})
	}
}

func snapshot(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if all[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// New fails for invalid files.
func TestInvalidFilesAtTheStart(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(k *kit)
		want  string
	}{
		"no file":        {func(k *kit) { k.cfg.CertFile += "x" }, "PeerTLS.CertFile: open"},
		"expired":        {func(k *kit) { k.ca.Issue([]string{"a"}, tlstest.Expired).Write(k.dir, "own") }, "has expired at"},
		"of a stranger":  {func(k *kit) { tlstest.New(k.t, "other").Issue([]string{"a"}).Write(k.dir, "own") }, "other members would not accept"},
		"not for peers":  {func(k *kit) { k.ca.Issue(nil, tlstest.Only(1)).Write(k.dir, "own") }, "PeerTLS.ClientCertFile as that of a client"},
		"not an address": {func(k *kit) { tlstest.Write(k.t, k.dir, "ca", []byte("x")) }, "PeerTLS.TrustedCAFile"},
	} {
		k := newKit(t).mutual()
		k.cfg.Peers = true
		test.spoil(k)
		if s, err := New(k.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: New() = %v, %v, want an error with %q", name, s, err, test.want)
		}
	}
}

// A second after the authority has changed, handshakes use the new one only.
func TestNewAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t).mutual()
		s := k.source()
		server := s.Server()
		next := tlstest.New(t, "next")
		try := func(a *tlstest.Authority) bool {
			client := &tls.Config{RootCAs: poolOf(k.ca), ServerName: "server"}
			cert := pair(t, a.Issue(nil))
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
			_, err := shake(client, server)
			return err == nil
		}
		if !try(k.ca) || try(next) {
			t.Fatal("at first the old authority is to be trusted, and the new one not")
		}
		tlstest.Write(t, k.dir, "ca", next.PEM)
		time.Sleep(recheck)
		if try(k.ca) || !try(next) {
			t.Error("after the change the new authority is to be trusted, and the old one not")
		}
	})
}

// Handshakes at the same time as changes, for the race detector.
func TestConcurrentHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t).mutual()
		s := k.source()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					if m := s.current(); m == nil || m.server == nil {
						t.Error("current() has no certificate")
					}
					_ = s.Client("host")
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		for range 3 {
			time.Sleep(1500 * time.Millisecond)
			k.ca.Issue([]string{"server"}).Write(k.dir, "own")
		}
		wg.Wait()
		if st := s.Stats(); st.Reloads != 3 {
			t.Errorf("Stats() = %+v, want 3 reloads", st)
		}
	})
}

// A self-signed certificate is kept over restarts. It is replaced near its end, for other hosts,
// and if it is damaged.
func TestOwnCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Auto: true, AutoDir: filepath.Join(t.TempDir(), "a", "b"), AutoHosts: []string{"host", "127.0.0.1"}}
		serial := func(c Config) string {
			t.Helper()
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			clientErr, serverErr := shake(&tls.Config{InsecureSkipVerify: true}, s.Server())
			if err := errors.Join(clientErr, serverErr); err != nil {
				t.Fatal(err)
			}
			return s.current().server.Leaf.SerialNumber.String()
		}
		first := serial(cfg)
		if again := serial(cfg); again != first {
			t.Error("a restart makes a new certificate, want the old one")
		}
		if info, err := os.Stat(filepath.Join(cfg.AutoDir, "key.pem")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("Stat(key.pem) = %v, %v, want it for its owner only", info, err)
		}
		running, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(320 * 24 * time.Hour)
		if got := running.current().server.Leaf.SerialNumber.String(); got != first {
			t.Error("320 of 366 days are no reason for a new certificate")
		}
		time.Sleep(20 * 24 * time.Hour)
		second := running.current().server.Leaf.SerialNumber.String()
		if second == first {
			t.Error("340 of 366 days have passed, want a new certificate, without a restart")
		}
		moved := cfg
		moved.AutoHosts = []string{"other"}
		third := serial(moved)
		if third == second {
			t.Error("the host is another one, want a new certificate")
		}
		if err := os.WriteFile(filepath.Join(cfg.AutoDir, "cert.pem"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if serial(moved) == third {
			t.Error("the file is damaged, want a new certificate")
		}
	})
}
