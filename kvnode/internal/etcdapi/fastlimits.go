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
	// maxFastStreams is the number of streams of service Fast on all connections. Each has three
	// goroutines, some 40 KiB. With fewer streams more clients make calls instead.
	maxFastStreams = 1024
	// maxFastBytes is what all streams may cost together: a request from before it is copied until
	// it is answered, an answer until gRPC has written it. A stream that costs fairFastBytes may grow
	// only while its own cost, that of its connection and that of all connections, added up, are
	// below maxFastBytes. So a stream alone uses a third of it, a connection with many streams
	// nearly a half, and each further connection finds as much free. A stream above is not read.
	// With less, clients with hundreds of requests under way wait. With more, a client that takes
	// no answers costs that much memory, and 16,000 goroutines for each 256 MiB.
	maxFastBytes = 64 << 20
	// fairFastBytes is what each stream may cost whatever the others do: two small requests and their answers.
	fairFastBytes = 3 * requestCost
	// requestCost is what a request costs beside its bytes: a goroutine with a stack of 8 KiB, its
	// contexts, the decoded request and its response.
	requestCost = 16 << 10
	// pairCost and messageCost are what a pair of metadata and a message inside a transaction
	// become when they are decoded.
	pairCost    = 256
	messageCost = 256
)

// fastLimits are the limits of all streams of service Fast.
type fastLimits struct {
	bytes atomic.Int64 // what they cost
	// idleWorkers are their goroutines that wait for a request.
	idleWorkers atomic.Int64

	stop     sync.Once
	stopping chan struct{} // closed by EndStreams

	mu struct {
		sync.Mutex
		streams int
		conns   map[net.Addr]*fastConn // gRPC has one address for each connection
	}
}

// fastConn is the part of one connection in fastLimits.
type fastConn struct {
	addr    net.Addr
	bytes   atomic.Int64
	streams int // under the lock of fastLimits
}

func (l *fastLimits) init() {
	l.stopping = make(chan struct{})
	l.mu.conns = make(map[net.Addr]*fastConn)
}

// openStream counts one more stream of the connection with that address, or refuses it.
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

// checkLocked returns the part of the connection with that address, which is new if it has no
// stream, or why it may have no further one.
func (l *fastLimits) checkLocked(addr net.Addr) (*fastConn, error) {
	c := l.mu.conns[addr]
	if c == nil {
		c = &fastConn{addr: addr}
	}
	if c.streams+1+l.mu.streams+1 > maxFastStreams {
		return nil, status.Errorf(codes.ResourceExhausted, "kvnode: one stream of %s too many: %d are open on this connection, and %d on all, of %d at most; "+
			"a connection may have as many as all leave free: make calls instead", fastwire.Service, c.streams, l.mu.streams, maxFastStreams)
	}
	return c, nil
}

// AdmitStream returns the error with which a stream of service Fast is refused that is to begin on
// the connection from addr, nil if there is room for it or if it is a request of another method. A
// server that asks it in grpc.InTapHandle refuses streams before they cost goroutines. It counts
// none: streams that begin at the same time may be refused later.
func (a *API) AdmitStream(addr net.Addr, method string) error {
	if method != fastwire.Method {
		return nil
	}
	a.fast.mu.Lock()
	defer a.fast.mu.Unlock()
	_, err := a.fast.checkLocked(addr)
	return err
}

// closeStream counts one stream less.
func (l *fastLimits) closeStream(c *fastConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.streams--
	if c.streams--; c.streams == 0 {
		delete(l.mu.conns, c.addr)
	}
}

// EndStreams has the streams of service Fast take no further request, for a server that stops.
// Each stream tells its client which request it has taken last, and ends when it has answered
// those that it has taken. Call EndStreams before GracefulStop, which waits for the streams.
func (a *API) EndStreams() { a.fast.stop.Do(func() { close(a.fast.stopping) }) }

// costOf returns what a request costs that has so many bytes.
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

// fitsLocked reports whether the stream may cost so much more.
func (s *fastStream) fitsLocked(more int) bool {
	own := s.mu.bytes + more
	return own <= fairFastBytes || int64(own)+s.conn.bytes.Load()+s.kv.fast.bytes.Load() <= maxFastBytes
}

// chargeLocked adds to what the stream costs, or takes away if n is negative.
func (s *fastStream) chargeLocked(n int) {
	s.mu.bytes += n
	s.conn.bytes.Add(int64(n))
	s.kv.fast.bytes.Add(int64(n))
}
