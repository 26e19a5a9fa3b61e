package etcdapi

import (
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

const (
	// maxFastStreams limits the sum of a connection's streams and all streams of service Fast. So one connection,
	// with streams that count twice, has at most half. Each stream has three goroutines, about 40 KiB.
	// Further clients make calls.
	maxFastStreams = 1024
	// maxFastBytes limits the charge of all streams. A request is charged from before it is copied
	// until it is answered, and an answer until gRPC has written it. A stream may always be charged
	// fairFastBytes. Above that, the stream's charge, its connection's charge and the charge of all
	// connections must not exceed maxFastBytes together. So a single stream uses up to a third, and
	// a connection with many streams nearly half. A stream over the limit is not read. With a lower
	// limit, clients with hundreds of pending requests wait. With a higher one, a client that does
	// not read occupies that much memory, and 16,000 goroutines per 256 MiB.
	maxFastBytes = 64 << 20
	// fairFastBytes is what each stream may be charged for in any case: two small requests and
	// their answers.
	fairFastBytes = 3 * requestCost
	// requestCost is the cost of a request in addition to its bytes: a goroutine with a stack of
	// 8 KiB, its contexts, the decoded request and its response.
	requestCost = 16 << 10
	// pairCost and messageCost are the decoded sizes of a metadata pair and of a message inside a
	// transaction.
	pairCost    = 256
	messageCost = 256
)

// fastLimits are the limits of all streams of service Fast.
type fastLimits struct {
	bytes atomic.Int64 // charged
	// idleWorkers counts the workers that wait for a request.
	idleWorkers atomic.Int64

	stop     sync.Once
	stopping chan struct{} // closed by StopFastStreams

	mu struct {
		sync.Mutex
		streams int
		conns   map[net.Addr]*fastConn // gRPC has one address per connection
	}
}

// fastConn is one connection's part in fastLimits.
type fastConn struct {
	addr    net.Addr
	bytes   atomic.Int64
	streams int // under the lock of fastLimits
}

func (l *fastLimits) init() {
	l.stopping = make(chan struct{})
	l.mu.conns = make(map[net.Addr]*fastConn)
}

// openStream counts a new stream of the connection with that address, or rejects it.
func (l *fastLimits) openStream(addr net.Addr) (*fastConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, err := l.checkLocked(addr)
	if err != nil {
		return nil, err
	}
	l.mu.conns[addr] = c
	c.streams++
	l.mu.streams++
	return c, nil
}

// checkLocked returns the connection with that address, a new one if it has no stream, or an
// error if it may open no further stream.
func (l *fastLimits) checkLocked(addr net.Addr) (*fastConn, error) {
	c := l.mu.conns[addr]
	if c == nil {
		c = &fastConn{addr: addr}
	}
	if c.streams+1+l.mu.streams+1 > maxFastStreams {
		return nil, status.Errorf(codes.ResourceExhausted, "kvnode: too many streams of %s: %d on this connection and %d on all connections, together at most %d; make calls instead",
			fastwire.Service, c.streams, l.mu.streams, maxFastStreams)
	}
	return c, nil
}

// AdmitFastStream returns an error if a new stream of service Fast on the connection from addr
// exceeds the limits. It returns nil for other methods. A server that calls it in
// grpc.InTapHandle rejects streams before they cost goroutines. It does not count the stream: of
// streams that open at the same time, some may be rejected later.
func (a *API) AdmitFastStream(addr net.Addr, method string) error {
	if method != fastwire.Method {
		return nil
	}
	a.fast.mu.Lock()
	defer a.fast.mu.Unlock()
	_, err := a.fast.checkLocked(addr)
	return err
}

// closeStream counts the end of a stream.
func (l *fastLimits) closeStream(c *fastConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.streams--
	if c.streams--; c.streams == 0 {
		delete(l.mu.conns, c.addr)
	}
}

// StopFastStreams makes the streams of service Fast accept no further requests when the server stops.
// Each stream tells its client the last request it has received, answers the pending ones and
// ends. Call it before GracefulStop, which waits for the streams.
func (a *API) StopFastStreams() { a.fast.stop.Do(func() { close(a.fast.stopping) }) }

// costOf returns the cost of a request of size bytes.
func (s *fastStream) costOf(r *fastwire.Request, size int) int {
	cost := requestCost + 3*size // copied, decoded, proposed
	if n := len(r.Metadata) / 2; n > 0 {
		cost += pairCost * (n + s.pairs)
	}
	if string(r.Method) == "Txn" {
		cost += messageCost * fastwire.TxnMessages(r.Message)
	}
	return cost
}

// fitsLocked reports whether the stream may be charged for more bytes.
func (s *fastStream) fitsLocked(more int) bool {
	own := s.mu.bytes + more
	return own <= fairFastBytes || int64(own)+s.conn.bytes.Load()+s.kv.fast.bytes.Load() <= maxFastBytes
}

// chargeLocked adds n, which may be negative, to what the stream is charged for.
func (s *fastStream) chargeLocked(n int) {
	s.mu.bytes += n
	s.conn.bytes.Add(int64(n))
	s.kv.fast.bytes.Add(int64(n))
}
