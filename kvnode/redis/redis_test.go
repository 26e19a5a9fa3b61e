package redis_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/fastkv"
	"github.com/leaderlease/go/kvnode/redis"
	"github.com/leaderlease/go/kvnode/server"
)

// patience is generous, as tests run on busy machines.
const patience = time.Minute

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// startCluster starts a member and returns a client of it.
func startCluster(t *testing.T) *clientv3.Client {
	t.Helper()
	cfg := server.Config{ClientListener: listen(t), HTTPListener: listen(t)}
	cfg.Node.DataDir, cfg.Node.SegmentSize, cfg.Node.Listener = t.TempDir(), 1<<20, listen(t)
	s, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case <-time.After(patience):
		t.Fatal("the member does not get ready")
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: s.ClientAddrs(), DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := fastkv.Use(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// startGateway starts a gateway and returns its address.
func startGateway(t *testing.T, c *clientv3.Client, change ...func(*redis.Config)) string {
	t.Helper()
	cfg := redis.Config{KV: c.KV, Lease: clientv3.RetryLeaseClient(c), Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg)
	}
	g, err := redis.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

// client is a connection to a gateway.
type client struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{t: t, c: c, r: bufio.NewReader(c)}
}

func encode(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := c.c.Write([]byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

// read reads a reply as redis-cli would print it, in one line.
func (c *client) read() string {
	c.t.Helper()
	reply, err := c.receive()
	if err != nil {
		c.t.Fatal(err)
	}
	return reply
}

func (c *client) receive() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	n, err := strconv.Atoi(line[1:])
	switch line[0] {
	case ':', '+':
		return line[1:], nil
	case '_':
		return "nil", nil
	case '$', '*', '%':
		if err != nil {
			return "", err
		}
		if n < 0 {
			return "nil", nil
		}
	default:
		return line, nil
	}
	if line[0] == '$' {
		b := make([]byte, n+2)
		_, err := io.ReadFull(c.r, b)
		return string(b[:n]), err
	}
	if line[0] == '%' {
		n *= 2
	}
	all := make([]string, n)
	for i := range all {
		if all[i], err = c.receive(); err != nil {
			return "", err
		}
	}
	return "[" + strings.Join(all, " ") + "]", nil
}

// try is do for goroutines.
func (c *client) try(args ...string) string {
	if _, err := c.c.Write([]byte(encode(args...))); err != nil {
		return err.Error()
	}
	reply, err := c.receive()
	if err != nil {
		return err.Error()
	}
	return reply
}

// do runs a command.
func (c *client) do(args ...string) string {
	c.t.Helper()
	c.send(encode(args...))
	return c.read()
}

// script runs lines of the form "command => reply". A reply that ends in … is a prefix.
func (c *client) script(text string) {
	c.t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		line, want, _ := strings.Cut(strings.TrimSpace(line), " => ")
		got := c.do(strings.Fields(line)...)
		prefix, cut := strings.CutSuffix(want, "…")
		if got != want && !(cut && strings.HasPrefix(got, prefix)) {
			c.t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// commandTests are scripts for one connection each.
var commandTests = []struct{ name, script string }{
	{"connection", `
			PING => PONG
			ping a => a
			PING a b => -ERR wrong number of arguments for 'ping' command
			ECHO a => a
			SELECT 0 => OK
			SELECT 1 => -ERR DB…
			AUTH a b => -ERR AUTH is refused…
			CLIENT SETNAME me => OK
			CLIENT SETINFO lib-name x => OK
			CONFIG GET appendonly save => [appendonly yes save ]
			COMMAND DOCS => []
			INFO => # Server…
			LPUSH a b => -ERR unknown command 'LPUSH'
			GET => -ERR wrong number of arguments for 'get' command
			HELLO 4 => -NOPROTO…
			HELLO 3 => [server redis version…
			GET no => nil
			RESET => RESET
			QUIT => OK`},
	{"strings", `
			GET s:a => nil
			SET s:a 1 => OK
			GET s:a => 1
			SET s:a 2 NX => nil
			SET s:b 2 XX => nil
			SET s:a 2 XX GET => 1
			SET s:b 3 NX GET => nil
			SET s:a 1 NX XX => -ERR syntax error
			SET s:a 1 EX => -ERR syntax error
			SET s:a 1 EX x => -ERR value is not an integer…
			SET s:a 1 EX 0 => -ERR invalid expire time…
			SET s:a 1 PX 9223372036854775807 => -ERR invalid expire time…
			MGET s:a s:none s:b s:a => [2 nil 3 2]
			EXISTS s:a s:a s:none => 2
			STRLEN s:a => 1
			TYPE s:a => string
			TYPE s:none => none
			INCR s:a => 3
			INCRBY s:a 10 => 13
			DECRBY s:a 3 => 10
			DECR s:a => 9
			DECRBY s:a -9223372036854775808 => -ERR value…
			INCRBY s:a 9223372036854775807 => -ERR increment…
			APPEND s:a x => 2
			INCR s:a => -ERR value is not an integer…
			GETSET s:a y => 9x
			SETNX s:a z => 0
			SETNX s:c z => 1
			GETDEL s:c => z
			GETDEL s:c => nil
			MSET s:a 1 s:c 2 s:a 3 => OK
			MSET s:a => -ERR wrong number…
			MGET s:a s:c => [3 2]
			DEL s:a s:a s:none => 1
			UNLINK s:b s:c => 2
			SETNX s:n 1 => 1`},
	{"expiry", `
			SET e:a 1 PX 100100 => OK
			TTL e:a => 10…
			PTTL e:a => 10…
			INCR e:a => 2
			TTL e:a => 10…
			SET e:a 3 KEEPTTL => OK
			TTL e:a => 10…
			EXPIRE e:a 1000 => 1
			EXPIRE e:a 1000 NX => -ERR wrong number…
			TTL e:a => …
			PERSIST e:a => 1
			PERSIST e:a => 0
			TTL e:a => -1
			TTL e:none => -2
			EXPIRE e:none 10 => 0
			SETEX e:a 100 v => OK
			PSETEX e:a 100000 v => OK
			SET e:a v => OK
			TTL e:a => -1
			PEXPIREAT e:a 1 => 1
			EXISTS e:a => 0
			SET e:a v EXAT 1 => OK
			EXISTS e:a => 0
			SET e:a v EXAT 9000000000 => OK
			EXPIRE e:a -1 => 1
			EXISTS e:a => 0`},
}

func TestCommands(t *testing.T) {
	addr := startGateway(t, startCluster(t))
	for _, test := range commandTests {
		t.Run(test.name, func(t *testing.T) { dial(t, addr).script(test.script) })
	}
}

func TestMulti(t *testing.T) {
	addr := startGateway(t, startCluster(t))
	c, other := dial(t, addr), dial(t, addr)
	c.script(`
			MULTI => OK
			MULTI => -ERR MULTI…
			SET m:a 1 EX 50 => QUEUED
			INCR m:a => QUEUED
			TTL m:a => QUEUED
			GET m:a => QUEUED
			PING => QUEUED
			EXEC => [OK 2 50 2 PONG]
			EXEC => -ERR EXEC…
			MULTI => OK
			NOSUCH => -ERR unknown…
			EXEC => -EXECABORT…
			WATCH m:a => OK
			MULTI => OK
			SET m:a 5 => QUEUED`)
	other.script("SET m:a 4 => OK")
	c.script(`
			EXEC => nil
			GET m:a => 4
			WATCH m:a m:none => OK
			GET m:a => 4
			MULTI => OK
			DEL m:a => QUEUED
			DISCARD => OK
			GET m:a => 4
			WATCH m:a => OK
			MULTI => OK
			DEL m:a => QUEUED
			EXEC => [1]`)
}

func TestScan(t *testing.T) {
	etcd := startCluster(t)
	c := dial(t, startGateway(t, etcd, func(c *redis.Config) { c.MaxConnMemory = 300_000 }))
	for i := range 1100 { // more than are read in one request
		if _, err := etcd.Put(t.Context(), fmt.Sprintf("s/%04d", i), "x"); err != nil {
			t.Fatal(err)
		}
	}
	c.script(`
		SET [a] x => OK
		SCAN 0 MATCH s/000[0-2] => [0 [s/0000 s/0001 s/0002]]
		SCAN 0 MATCH s?00[^1-9]0 COUNT 1 => [0 [s/0000]]
		SCAN 0 MATCH *0*99 TYPE string => [0 [s/0099 s/0199 s/0299 s/0399 s/0499 s/0599 s/0699 s/0799 s/0899 s/0999 s/1099]]
		SCAN 0 MATCH \[a] => [0 [[a]]]
		SCAN 0 MATCH a* => [0 []]
		SCAN 0 TYPE list => [0 []]
		SCAN 0 MATCH [a => -ERR syntax error
		SCAN 0 MATCH => -ERR syntax error
		SCAN 0 LIMIT 1 => -ERR syntax error
		SCAN 12345 => -ERR invalid cursor…`)
	if got := strings.Fields(c.do("SCAN", "0")); len(got) != 1102 {
		t.Errorf("SCAN 0: %d words, want the cursor and 1101 keys", len(got))
	}
	for i := range 5 {
		c.do("SET", strings.Repeat("long", 1000)+fmt.Sprint(i), "x")
	}
	c.want("-ERR bytes of a connection: 30…", "SCAN", "0")
	c.want("[0 [[a]]]", "SCAN", "0", "MATCH", "[[]a]")
}

func TestPipeline(t *testing.T) {
	addr := startGateway(t, startCluster(t))
	c := dial(t, addr)
	var b strings.Builder
	for i := range 300 {
		b.WriteString(encode("SET", fmt.Sprint("p:", i%7), fmt.Sprint(i)))
		b.WriteString(encode("GET", fmt.Sprint("p:", i%7)))
		b.WriteString(encode("GET", fmt.Sprint("p:", i%7)))
	}
	go func() { _, _ = c.c.Write([]byte(b.String())) }() // reading the replies fails if it does
	for i := range 300 {
		for _, want := range []string{"OK", fmt.Sprint(i), fmt.Sprint(i)} {
			if got := c.read(); got != want {
				t.Fatalf("reply %d: %q, want %q", i, got, want)
			}
		}
	}
}
