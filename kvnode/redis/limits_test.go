package redis_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/redis"
)

// wantClosed checks the bytes that the gateway sends until it closes the connection.
func (c *client) wantClosed(part string) {
	c.t.Helper()
	got, err := io.ReadAll(c.r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatal("the connection stays open")
	}
	if errors.Is(err, syscall.ECONNRESET) {
		return // the gateway has closed before it read all, so TCP may drop its last reply
	}
	if part == "" && len(got) > 0 || !strings.Contains(string(got), part) {
		c.t.Errorf("before the end: %.200q, want %q", got, part)
	}
}

func TestLimits(t *testing.T) {
	etcd := startCluster(t)
	addr := startGateway(t, etcd, func(c *redis.Config) { c.MaxBulk, c.MaxConnMemory = 100_000, 1_000_000 })
	bystander := dial(t, addr)
	for _, test := range []struct{ name, sent, want string }{
		{"bulk", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100001\r\n", "-ERR Protocol error: invalid bulk length: 100001, the limit is 100000"},
		{"arguments", "*1000000000\r\n", "-ERR Protocol error: invalid multibulk length: 1000000000, the limit is 1024"},
		{"a million keys", "*1000001\r\n$4\r\nMGET\r\n", "-ERR Protocol error: invalid multibulk length: 1000001, the limit is 1024"},
		{"command", "*60\r\n" + strings.Repeat("$100000\r\n"+strings.Repeat("a", 100000)+"\r\n", 60), "-ERR bytes of a connection: 1"},
		{"POST", "POST / HTTP/1.1\r\nHost: a\r\n\r\nSET k web\r\n", ""},
		{"Host", "host: a\r\nSET k web\r\n", ""},
		{"quotes", "SET k \"a b\"\r\n", "-ERR Protocol error: an inline command has quotes"},
		{"after a command", "SET k v\r\n*1\r\nPING\r\n", "+OK\r\n-ERR Protocol error: expected '$'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := dial(t, addr)
			go func() { _, _ = c.c.Write([]byte(test.sent)) }() // the gateway may close before the end
			c.wantClosed(test.want)
		})
	}
	bystander.want("v", "GET", "k")
	for _, command := range [][]string{{"SET", "k", "v"}, {"MGET", "a", "k"}, {"WATCH", "k"}, {"EVAL", release, "1", "k", "me"}} {
		long := slices.Clone(command)
		long[slices.Index(command, "k")] = strings.Repeat("k", 16<<10+1)
		bystander.want("-ERR bytes of a key: 16385, the limit is 16384", long...)
	}
	bystander.want("OK", "SET", "k", strings.Repeat("a", 100_000))
	bystander.want("-ERR bytes of a value: 100001, the limit is 100000", "APPEND", "k", "a")
}

// TestMemoryLimit checks what a connection may hold.
func TestMemoryLimit(t *testing.T) {
	etcd := startCluster(t)
	limited := func(limit int) *client {
		return dial(t, startGateway(t, etcd, func(c *redis.Config) { c.MaxConnMemory = limit }))
	}
	t.Run("values", func(t *testing.T) {
		c := limited(250_000)
		for _, k := range []string{"v1", "v2", "v3"} {
			c.want("OK", "SET", k, strings.Repeat("a", 100_000))
		}
		c.want("-ERR bytes of a connection: 30…", "MGET", "v1", "v2", "v3")
		c.want("[…", "MGET", "v1", "v2", "v1", "v1")
		c.script("MULTI => OK\nGET v1 => QUEUED\nMGET v2 v3 => QUEUED\nEXEC => -ERR bytes of a connection: 30…")
		c.send(encode("GET", "v1") + encode("GET", "v2") + encode("GET", "v3") + encode("GET", "v1")) // each alone is within the limit
		for range 4 {
			if got := c.read(); len(got) != 100_000 {
				t.Errorf("pipelined GET: %.100q", got)
			}
		}
		c.want("-ERR bytes of a pattern: 1025, the limit is 1024", "SCAN", "0", "MATCH", strings.Repeat("*", 1025))
	})
	t.Run("WATCH", func(t *testing.T) {
		c := limited(50_000)
		got := "OK"
		for i := 0; got == "OK"; i++ {
			got = c.do("WATCH", fmt.Sprint("w:", i))
		}
		if !strings.HasPrefix(got, "-ERR bytes of a connection: 5") {
			t.Errorf("WATCH: %q", got)
		}
		c.script("UNWATCH => OK\nWATCH w:1 w:2 => OK")
	})
	t.Run("MULTI", func(t *testing.T) {
		c := limited(1_000_000)
		c.want("OK", "MULTI")
		got := "QUEUED"
		for got == "QUEUED" {
			got = c.do("SET", "k:none", strings.Repeat("a", 90_000))
		}
		if !strings.HasPrefix(got, "-ERR bytes of a connection: 1") {
			t.Errorf("SET inside MULTI: %q", got)
		}
		c.want("-EXECABORT…", "EXEC")
		// etcd allows 128 operations.
		c.want("OK", "MULTI")
		for i := range 129 {
			c.want("QUEUED", "SET", fmt.Sprint("many:", i), "v")
		}
		c.want("-ERR nothing was written…", "EXEC")
		c.want("0", "EXISTS", "many:0", "many:128")
	})
}

// Connections that hold all memory leave each other one enough for small commands.
func TestSharedMemory(t *testing.T) {
	addr := startGateway(t, startCluster(t), func(c *redis.Config) { c.MaxConnMemory, c.MaxMemory = 10_000_000, 200_000 })
	hoarder, other := dial(t, addr), dial(t, addr)
	hoarder.want("OK", "MULTI")
	for got := "QUEUED"; got == "QUEUED"; {
		if got = hoarder.do("SET", "k", strings.Repeat("a", 10_000)); !strings.HasPrefix(got, "-ERR bytes of all connections") && got != "QUEUED" {
			t.Fatal(got)
		}
	}
	other.send(strings.Repeat("\r\n", 50_000)) // empty lines hold nothing
	other.want("OK", "SET", "k", strings.Repeat("a", 10_000))
	other.want("-ERR bytes of all connections…", "ECHO", strings.Repeat("a", 100_000))
}

func TestLimitsOfWrites(t *testing.T) {
	c := dial(t, startGateway(t, startCluster(t), func(c *redis.Config) { c.MaxConnMemory = 3_000_000 }))
	c.want("OK", "SET", "v", strings.Repeat("a", 999_000))
	c.script("MULTI => OK\nAPPEND v x => QUEUED\nGET v => QUEUED\nAPPEND v x => QUEUED\nAPPEND v x => QUEUED\nEXEC => -ERR bytes of a connection: 3…")
	c.want("999000", "STRLEN", "v")
	a := strings.Repeat("a", 800_000)
	c.want("-ERR nothing was written: bytes of a transaction: 1600002, the limit is 1572864", "MSET", "b", a, "c", a)
}

func TestConnectionLimit(t *testing.T) {
	addr := startGateway(t, startCluster(t), func(c *redis.Config) { c.MaxConns = 2 })
	a, b := dial(t, addr), dial(t, addr)
	a.want("PONG", "PING")
	b.want("PONG", "PING")
	dial(t, addr).wantClosed("")
	a.want("OK", "QUIT")
	a.wantClosed("")
	for began := time.Now(); dial(t, addr).try("PING") != "PONG"; {
		if time.Since(began) > patience {
			t.Fatal("the place of a closed connection is not free")
		}
	}
	b.want("PONG", "PING")
}

// TestSlowReader checks that a client that does not read its replies is dropped, and harms no other.
func TestSlowReader(t *testing.T) {
	addr := startGateway(t, startCluster(t), func(c *redis.Config) { c.WriteTimeout = 300 * time.Millisecond })
	slow, other := dial(t, addr), dial(t, addr)
	other.want("OK", "SET", "k", strings.Repeat("a", 200_000))
	go func() { // the gateway stops reading, and then closes
		for {
			if _, err := slow.c.Write([]byte(encode("GET", "k"))); err != nil {
				return
			}
		}
	}()
	for began := time.Now(); !strings.Contains(other.do("INFO"), "connected_clients:1\r\n"); {
		if time.Since(began) > patience {
			t.Fatal("the slow reader stays connected")
		}
	}
	other.want("1", "EXISTS", "k")
}

// TestIncompleteCommand checks that the rest of a command must come in time, and that a client may be idle.
func TestIncompleteCommand(t *testing.T) {
	addr := startGateway(t, startCluster(t), func(c *redis.Config) { c.ReadTimeout = 10 * time.Millisecond })
	idle, slow := dial(t, addr), dial(t, addr)
	idle.want("PONG", "PING")
	slow.send(encode("PING") + "*2\r\n$4\r\nEC") // what is complete is answered
	slow.wantClosed("+PONG\r\n-ERR Protocol error: the command or MULTI is not complete after 10ms\r\n")
	idle.want("PONG", "PING")
	slow = dial(t, addr)
	slow.send(encode("MULTI") + encode("PING"))
	slow.wantClosed("the command or MULTI is not complete after 10ms\r\n")
}

// TestLongMULTI checks that a connection holds no more than a transaction may write.
func TestLongMULTI(t *testing.T) {
	c := dial(t, startGateway(t, startCluster(t)))
	c.want("OK", "MULTI")
	c.want("QUEUED", "SET", "a", strings.Repeat("a", 1_000_000))
	c.want("QUEUED", "SET", "b", strings.Repeat("b", 1_000_000))
	c.want("-ERR bytes of a MULTI and WATCH: 3000…", "SET", "c", strings.Repeat("c", 1_000_000))
	c.want("-EXECABORT…", "EXEC")
}

// TestEndlessPipeline checks that replies come while a client goes on sending.
func TestEndlessPipeline(t *testing.T) {
	c := dial(t, startGateway(t, startCluster(t)))
	stop := make(chan struct{})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := c.c.Write([]byte(encode("ECHO", "a") + encode("GET", "none"))); err != nil {
				return
			}
		}
	}()
	for range 1000 {
		if a, b := c.read(), c.read(); a != "a" || b != "nil" {
			t.Fatalf("%q, %q, want a, nil", a, b)
		}
	}
	close(stop)
	if err := c.c.Close(); err != nil {
		t.Error(err)
	}
	<-sent
}

func TestCloseEndsConnections(t *testing.T) {
	etcd := startCluster(t)
	g, err := redis.New(redis.Config{KV: etcd.KV, Lease: clientv3.RetryLeaseClient(etcd)})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	c := dial(t, l.Addr().String())
	c.want("PONG", "PING")
	g.Close()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	c.wantClosed("")
	if err := g.Serve(listen(t)); err == nil {
		t.Error("Serve after Close: no error")
	}
}
