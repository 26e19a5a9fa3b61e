package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// crowd keeps n silent connections open at each address until leave is called. Half of them come
// from the members' own host.
func crowd(t *testing.T, n int, addrs ...string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var there sync.WaitGroup
	for i := range n * len(addrs) {
		there.Add(1)
		arrived := sync.OnceFunc(there.Done)
		from := net.IPv4(127, 0, 0, 1)
		if i%2 == 0 {
			from = net.IPv4(127, 1, 0, byte(i%100)+1)
		}
		wg.Go(func() {
			defer arrived()
			for ctx.Err() == nil {
				silent(ctx, from, addrs[i%len(addrs)], arrived)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second): // or the machine does nothing else
				}
			}
		})
	}
	there.Wait()
	return func() {
		cancel()
		wg.Wait()
	}
}

// silent is one silent connection, until it is closed.
func silent(ctx context.Context, from net.IP, addr string, arrived func()) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	conn, err := d.DialContext(ctx, "tcp", addr)
	arrived()
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = conn.Read(make([]byte, 1)) // until it is closed
}

// peerAddr returns the address of a server for peers.
func peerAddr(s *Server) string { return strings.TrimPrefix(s.cfg.ListenPeerURLs[0], "https://") }

// listenAgain binds a port that was closed. Another connection may use it as its local port
// meanwhile.
func listenAgain(t *testing.T, addr string) net.Listener {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err == nil {
			return l
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Silent connections at the peer port and the client port keep out neither a restarting member
// nor a client.
func TestSilentConnectionsKeepOutNoClient(t *testing.T) {
	maxPendingClients = 16
	defer func() { maxPendingClients = 0 }()
	f := newFiles(t)
	all := trio(t, f.mutual)
	leads, others := leader(t, all)
	away, other := others[0], others[1]
	stop(t, away)
	cfg := away.cfg
	cfg.ClientListener, cfg.HTTPListener, cfg.Node.Listener = ephemeral(t), ephemeral(t), listenAgain(t, peerAddr(away))
	cfg.ListenClientURLs, cfg.ListenClientHTTPURLs, cfg.Node.ClientURLs = nil, nil, nil
	// More than may be pending.
	defer crowd(t, 600, peerAddr(leads), peerAddr(other))()
	defer crowd(t, 60, other.ClientAddrs()[0])()

	back, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, back) })
	await(t, "the member is in again", back.Ready())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := secureConn(t, other, f.trusting(f.ca.Issue(nil)))
	// On a busy machine the crowd may evict the client during a slow handshake; gRPC connects again.
	if err := conn.Invoke(ctx, "/etcdserverpb.Maintenance/Status", new(emptypb.Empty), new(emptypb.Empty), grpc.WaitForReady(true)); err != nil {
		t.Errorf("a client's call in the crowd: %v", err)
	}
	for _, name := range []string{"kvnode_transport_evicted_connections_total", "kvnode_client_evicted_connections_total"} {
		until(t, name+" counts evicted connections", func() bool { return total(t, other, name) > 0 })
	}
}

// Connections of the Redis protocol that send nothing are evicted like others, also to make room for etcd's clients.
func TestSilentRedisConnectionsAreEvicted(t *testing.T) {
	maxPendingClients = 16
	defer func() { maxPendingClients = 0 }()
	s := solo(t, func(c *Config) { c.ListenRedisURLs = []string{"http://127.0.0.1:0"} })
	conn, err := net.Dial("tcp", s.RedisAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	const ping = "PING\r\n"
	if _, err := conn.Write([]byte(ping)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("+PONG\r\n"))); err != nil {
		t.Fatal(err)
	}
	defer crowd(t, 60, s.RedisAddrs()[0])()
	until(t, "a silent connection is evicted", func() bool { return total(t, s, "kvnode_client_evicted_connections_total") > 0 })
	if got := redisReplies(t, conn, ping+"QUIT\r\n"); got != "+PONG\r\n+OK\r\n" {
		t.Errorf("a client that has sent a command, in the crowd: %q", got)
	}
}

// total sums a metric's values.
func total(t *testing.T, s *Server, name string) (n float64) {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			n += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return n
}

// Connections to the client URLs are counted until they are closed, with gRPC and HTTP/1.
func TestClientsAreCounted(t *testing.T) {
	s := solo(t, onePort)
	wait := func(what string, want float64, metric string) {
		t.Helper()
		until(t, fmt.Sprintf("%s: %s is %v", what, metric, want), func() bool { return total(t, s, metric) == want })
	}
	const open, pending = "kvnode_client_open_connections", "kvnode_client_pending_connections"
	conn := dial(t, s)
	if err := conn.Invoke(t.Context(), "/etcdserverpb.Maintenance/Status", new(emptypb.Empty), new(emptypb.Empty)); err != nil {
		t.Fatal(err)
	}
	wait("a gRPC client", 1, open)
	wait("a gRPC client", 0, pending)
	raw, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.ClientAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	wait("a silent connection", 2, open)
	wait("a silent connection", 1, pending)
	if _, err := raw.Write([]byte("GET /health HTTP/1.1\r\nHost: ")); err != nil {
		t.Fatal(err)
	}
	wait("half a request", 1, pending)
	if _, err := raw.Write([]byte("localhost\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	wait("a request", 0, pending)
	wait("an idle client of HTTP", 2, open)
	_ = raw.Close()
	wait("one has gone", 1, open)
	_ = conn.Close()
	wait("both have gone", 0, open)
}
