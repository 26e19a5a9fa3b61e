package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// crowd opens many unauthenticated connections to a cluster. Some send nothing, some begin handshakes
// and do not finish them, and some have a valid certificate and send a false hello.
type crowd struct {
	// Peers and Clients are the addresses, host:port, of the peer port and the client port.
	Peers, Clients []string
	// Silent is the number of connections that send nothing. Each is opened again Pause after it was closed.
	Silent int
	Pause  time.Duration
	// Failing handshakes and false hellos (Lies) are begun each second.
	Failing, Lies int
	// Liar is a certificate that the members' authority has signed, for clients that send a false
	// hello. Lie is that hello.
	Liar tls.Certificate
	Lie  []byte
	// Sources is the number of loopback addresses that clients use. With 1 it is the members'
	// own address, otherwise none of them is.
	Sources int

	counts
	source atomic.Uint64 // numbers the source addresses
}

type counts struct{ open, cut, refused, failed, lied atomic.Int64 }

// String describes the connections so far.
func (c *crowd) String() string {
	return fmt.Sprintf("%d silent connections are open, %d were closed, %d could not be made; %d handshakes failed, %d lied",
		c.open.Load(), c.cut.Load(), c.refused.Load(), c.failed.Load(), c.lied.Load())
}

// Run opens connections until ctx ends, and waits until all are closed.
func (c *crowd) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range c.Silent {
		door := c.Peers
		if i%2 == 0 {
			door = c.Clients
		}
		wg.Go(func() { c.silent(ctx, door[i/2%len(door)]) })
	}
	hellos := map[string][]byte{"leaderlease-peer": clientHello("leaderlease-peer"), "h2": clientHello("h2")}
	wg.Go(func() {
		c.each(ctx, c.Failing, func(n uint64) {
			defer c.failed.Add(1)
			if n%2 == 0 {
				c.fail(ctx, c.Peers[n/2%uint64(len(c.Peers))], hellos["leaderlease-peer"])
				return
			}
			c.fail(ctx, c.Clients[n/2%uint64(len(c.Clients))], hellos["h2"])
		})
	})
	wg.Go(func() {
		c.each(ctx, c.Lies, func(n uint64) {
			defer c.lied.Add(1)
			c.lie(ctx, c.Peers[n%uint64(len(c.Peers))])
		})
	})
	wg.Wait()
}

// each calls f perSecond times a second, without waiting for earlier calls.
func (c *crowd) each(ctx context.Context, perSecond int, f func(n uint64)) {
	if perSecond == 0 {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	began, n := time.Now(), 0
	for ctx.Err() == nil {
		for ; n < int(time.Since(began).Seconds()*float64(perSecond)); n++ {
			wg.Go(func() { f(uint64(n)) })
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// dial connects from the next source address.
func (c *crowd) dial(ctx context.Context, addr string) (net.Conn, error) {
	from := net.IPv4(127, 0, 0, 1)
	if c.Sources > 1 {
		i := c.source.Add(1) % uint64(c.Sources)
		from = net.IPv4(127, 1, byte(i>>8), byte(i)+1)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // or its port would be taken for a minute
		}
	}
	return conn, err
}

func (c *crowd) silent(ctx context.Context, addr string) {
	for ctx.Err() == nil {
		c.wait(ctx, addr)
		select {
		case <-ctx.Done():
		case <-time.After(c.Pause):
		}
	}
}

// wait connects and sends nothing until the server closes the connection.
func (c *crowd) wait(ctx context.Context, addr string) {
	conn, err := c.dial(ctx, addr)
	if err != nil {
		c.refused.Add(1)
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	c.open.Add(1)
	_, _ = conn.Read(make([]byte, 1)) // whatever ends it
	c.open.Add(-1)
	c.cut.Add(1)
}

const handshakeTime = 5 * time.Second

// fail sends a hello that costs the server a handshake, and disconnects.
func (c *crowd) fail(ctx context.Context, addr string, hello []byte) {
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	if _, err := conn.Write(hello); err == nil {
		_, _ = conn.Read(make([]byte, 4096)) // an answer that the client discards
	}
}

// lie authenticates with a valid certificate and sends a false hello.
func (c *crowd) lie(ctx context.Context, addr string) {
	raw, err := c.dial(ctx, addr)
	if err != nil {
		return
	}
	defer func() { _ = raw.Close() }()
	_ = raw.SetDeadline(time.Now().Add(handshakeTime))
	conn := tls.Client(raw, &tls.Config{
		Certificates: []tls.Certificate{c.Liar}, NextProtos: []string{"leaderlease-peer"},
		InsecureSkipVerify: true, // #nosec G402 -- it does not care where it is
	})
	if _, err := conn.Write(c.Lie); err == nil {
		_, _ = conn.Read(make([]byte, 1024)) // the refusal
	}
}

// clientHello returns the first message of a TLS client for a protocol.
func clientHello(protocol string) []byte {
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	go func() {
		c := tls.Client(near, &tls.Config{NextProtos: []string{protocol}, InsecureSkipVerify: true}) // #nosec G402 -- no server answers
		_ = c.Handshake()                                                                            // as above
		_ = near.Close()
	}()
	hello := make([]byte, 16<<10)
	n, _ := far.Read(hello) // it is written in one piece
	return hello[:n]
}
