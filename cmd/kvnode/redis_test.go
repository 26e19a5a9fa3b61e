package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/tlstest"
)

// gatewayUntil runs kvnode redis, and stops it after f. plain is the gateway's address.
func gatewayUntil(t *testing.T, f func(plain string), args ...string) {
	t.Helper()
	var out, errs buffer
	exited := make(chan int, 1)
	go func() {
		exited <- run(System{Args: append([]string{"redis", "--listen", "127.0.0.1:0"}, args...), Stdout: &out, Stderr: &errs})
	}()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(out.String(), "\n"); {
		if time.Now().After(deadline) || len(exited) > 0 {
			t.Fatalf("kvnode redis does not serve: %s%s", out.String(), errs.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
	addr, is := strings.CutPrefix(strings.TrimSpace(out.String()), "serving the Redis protocol on ")
	if !is {
		t.Errorf("kvnode redis printed %q", out.String())
	}
	f(addr)
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-exited; code != exitOK {
		t.Errorf("kvnode redis = %d %s, want %d", code, errs.String(), exitOK)
	}
}

// wantReplies sends inline commands and compares all replies until the connection ends.
func wantReplies(t *testing.T, c net.Conn, sent, want string) {
	t.Helper()
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, sent); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(bufio.NewReader(c))
	if err != nil || string(got) != want {
		t.Errorf("%q: %q, %v, want %q", sent, got, err, want)
	}
}

func TestRedis(t *testing.T) {
	const sent = "SET k v NX PX 10000\r\nSET k w NX PX 10000\r\nGET k\r\nQUIT\r\n"
	metrics := "http://" + free(t)
	one(t, func(addr string) {
		gatewayUntil(t, func(plain string) {
			c, err := net.Dial("tcp", plain)
			if err != nil {
				t.Fatal(err)
			}
			wantReplies(t, c, sent, "+OK\r\n$-1\r\n$1\r\nv\r\n+OK\r\n")
			page, err := http.Get(metrics + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			defer page.Body.Close()
			body, err := io.ReadAll(page.Body)
			if err != nil || !strings.Contains(string(body), `kvnode_redis_locks_total{step="contended"} 1`) {
				t.Errorf("/metrics: %v %s", err, body)
			}
		}, "--endpoints", addr, "--listen-metrics-urls", metrics)
		if code, stdout, stderr := kvnode("get", "k", "--endpoints", addr); code != exitOK || stdout != "k\nv\n" {
			t.Errorf("kvnode get = %d %q %s", code, stdout, stderr)
		}
	})
}

// TestRedisSession runs the session with redis-cli in docs/kvnode.md.
func TestRedisSession(t *testing.T) {
	page, err := os.ReadFile("../../docs/kvnode.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "redis-cli\n127.0.0.1:6379> ")
	block, _, _ = strings.Cut(block, "\n```")
	steps := strings.Split(block, "\n127.0.0.1:6379> ")
	if len(steps) < 5 {
		t.Fatalf("the page has %d commands", len(steps))
	}
	one(t, func(addr string) {
		gatewayUntil(t, func(plain string) {
			c, err := net.Dial("tcp", plain)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			r := bufio.NewReader(c)
			number := regexp.MustCompile(`[0-9]+`)
			for _, step := range steps {
				line, want, _ := strings.Cut(step, "\n")
				if got := cli(t, c, r, line); number.ReplaceAllString(got, "N") != number.ReplaceAllString(want, "N") {
					t.Errorf("%s: %s, want %s", line, got, want)
				}
			}
		}, "--endpoints", addr)
	})
}

// cli sends a command as it is typed into redis-cli, and returns what that prints.
func cli(t *testing.T, c net.Conn, r *bufio.Reader, line string) string {
	t.Helper()
	args := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(line, -1)
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(args))
	for _, a := range args {
		a = strings.Trim(a, `"`)
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c, text.String()); err != nil {
		t.Fatal(err)
	}
	reply, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	switch reply = strings.TrimSpace(reply); {
	case reply == "$-1":
		return "(nil)"
	case reply[0] == ':':
		return "(integer) " + reply[1:]
	}
	return strings.TrimPrefix(reply, "+")
}

func TestRedisOverTLS(t *testing.T) {
	authority := tlstest.New(t, "redis")
	served, shown := authority.Issue([]string{"127.0.0.1"}), authority.Issue([]string{"client"})
	cert, err := tls.X509KeyPair(shown.Cert, shown.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	dir := t.TempDir()
	certFile, keyFile := served.Write(dir, "gateway")
	ca := tlstest.Write(t, dir, "ca.pem", authority.PEM)
	one(t, func(addr string) {
		gatewayUntil(t, func(secured string) {
			c, err := tls.Dial("tcp", secured, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}})
			if err != nil {
				t.Fatal(err)
			}
			wantReplies(t, c, "PING\r\nQUIT\r\n", "+PONG\r\n+OK\r\n")
			c, err = tls.Dial("tcp", secured, &tls.Config{RootCAs: roots})
			if err == nil { // with TLS 1.3 the client learns of it when it reads
				_, err = c.Read(make([]byte, 1))
				_ = c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "certificate required") {
				t.Errorf("without a certificate: %v", err)
			}
		}, "--endpoints", addr, "--cert-file", certFile, "--key-file", keyFile, "--trusted-ca-file", ca)
	})
}

func TestRedisHelp(t *testing.T) {
	code, help, stderr := kvnode("redis", "--help")
	if code != exitOK || stderr != "" {
		t.Errorf("kvnode redis --help = %d %s", code, stderr)
	}
	golden(t, "redis-help.txt", help)
}

func TestRedisRefusals(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "none.pem")
	one(t, func(addr string) {
		for _, test := range []struct{ args, want string }{
			{"extra", `"extra"`},
			{"--max-connections 0", "must be positive"},
			{"--max-bulk-bytes 0", "must be positive"},
			{"--listen 0.0.0.0:0", `--listen "0.0.0.0:0" is not a loopback address: set --cert-file`},
			{"--listen nowhere", `--listen "nowhere"`},
			{"--log-level loud", `--log-level "loud" must be debug`},
			{"--listen-metrics-urls http://0.0.0.0:0", `--listen-metrics-urls "0.0.0.0:0" is not a loopback address`},
			{"--listen-metrics-urls https://127.0.0.1:0", "needs --cert-file"},
			{"--listen-metrics-urls 127.0.0.1:0", "must be http://host:port"},
			{"--cert-file " + empty, "--cert-file"},
			{"--trusted-ca-file " + empty, "--cert-file"},
		} {
			args := append([]string{"redis", "--listen", "127.0.0.1:0", "--endpoints", addr}, strings.Fields(test.args)...)
			if code, _, stderr := kvnode(args...); code != exitUsage || !strings.Contains(stderr, test.want) {
				t.Errorf("kvnode redis %s = %d %s, want %d and %q", test.args, code, stderr, exitUsage, test.want)
			}
		}
	})
}
