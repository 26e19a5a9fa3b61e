package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// redisReplies sends inline commands that end with QUIT, and returns all replies.
func redisReplies(t *testing.T, c net.Conn, commands string) string {
	t.Helper()
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, commands); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	return string(got)
}

// Every member serves the Redis protocol, and its metrics count the locks.
func TestRedisInsideAMember(t *testing.T) {
	for i, s := range trio(t, func(c *Config) { c.ListenRedisURLs = []string{"http://127.0.0.1:0"} }) {
		conn, err := net.Dial("tcp", s.RedisAddrs()[0])
		if err != nil {
			t.Fatal(err)
		}
		const commands = "SET lock:%[1]d me NX PX 30000\r\nSET lock:%[1]d you NX PX 30000\r\nMGET lock:0 lock:%[1]d\r\nQUIT\r\n"
		const want = "+OK\r\n$-1\r\n*2\r\n$2\r\nme\r\n$2\r\nme\r\n+OK\r\n"
		if got := redisReplies(t, conn, fmt.Sprintf(commands, i)); got != want {
			t.Errorf("member %d: %q, want %q", i, got, want)
		}
		for _, metric := range []string{`kvnode_redis_locks_total{step="acquired"} 1`, `kvnode_redis_lock_contention_total{prefix="lock"} 1`} {
			if _, body := page(t, s, "/metrics"); !strings.Contains(body, metric) {
				t.Errorf("/metrics of member %d has no %s", i, metric)
			}
		}
	}
}

// The Redis protocol needs the certificate that clients need, and a client that is idle does not delay a stop.
func TestRedisOverTLS(t *testing.T) {
	f := newFiles(t)
	s := solo(t, f.mutual, func(c *Config) { c.ListenRedisURLs = []string{"https://" + free(t)} })
	dial := func(cfg *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", s.RedisAddrs()[0])
	}
	conn, err := dial(f.trusting(f.ca.Issue(nil)))
	if err != nil {
		t.Fatal(err)
	}
	if got := redisReplies(t, conn, "PING\r\nQUIT\r\n"); got != "+PONG\r\n+OK\r\n" {
		t.Errorf("with a certificate: %q", got)
	}
	if conn, err = dial(f.trusting()); err == nil { // TLS 1.3: the client learns of it when it reads
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("without a certificate: %v", err)
	}
	idle, err := dial(f.trusting(f.ca.Issue(nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = idle.Close() }) // after the stop
}
