package callmetrics

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/durations"
)

// The kinds of methods.
const (
	unary        = "unary"
	clientStream = "client_stream"
	serverStream = "server_stream"
	bidiStream   = "bidi_stream"
)

func kindOf(client, server bool) string {
	switch {
	case client && server:
		return bidiStream
	case client:
		return clientStream
	case server:
		return serverStream
	default:
		return unary
	}
}

// numCodes is how many codes gRPC has. What has another one counts as Unknown.
const numCodes = int(codes.Unauthenticated) + 1

// bounds are Prometheus's own, as in etcd.
var bounds = []time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Method counts the calls of one method. It allocates nothing.
type Method struct {
	kind, service, name string             // labels
	took                *durations.Striped // nil if there is no histogram
	cells               []cell             // stripes
}

// cell has what was counted on one stripe. Of a unary method no messages are counted: it
// receives one for each call, and sends one for each that succeeds.
type cell struct {
	started, received, sent atomic.Uint64
	handled                 [numCodes]atomic.Uint64
	_                       [32]byte // a cell is three cache lines
}

func newMethod(kind, service, name string, histogram bool) *Method {
	of := &Method{kind: kind, service: service, name: name, cells: make([]cell, durations.Stripes)}
	if histogram {
		of.took = durations.NewStriped(bounds)
	}
	return of
}

func (of *Method) here() *cell { return &of.cells[durations.Stripe()] }

// Begin counts a call that begins. It returns what End is to be given.
func (of *Method) Begin() (begun time.Time) {
	of.here().started.Add(1)
	if of.took != nil {
		begun = time.Now()
	}
	return begun
}

// End counts a call that has ended so.
func (of *Method) End(begun time.Time, err error) {
	of.here().handled[codeOf(err)].Add(1)
	if of.took != nil {
		of.took.Note(time.Since(begun))
	}
}

// Done counts n calls of a unary method that have begun and succeeded. Each is to be given to
// Note, too.
func (of *Method) Done(n uint64) {
	if n > 0 {
		at := of.here()
		at.started.Add(n)
		at.handled[codes.OK].Add(n)
	}
}

// Note notes how long a call took that is counted by Done.
func (of *Method) Note(took time.Duration) {
	if of.took != nil {
		of.took.Note(took)
	}
}

func codeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err) // as gRPC does
	}
	if int(st.Code()) >= numCodes {
		return codes.Unknown
	}
	return st.Code()
}

// counts are the sums of all cells.
type counts struct {
	started, received, sent uint64
	handled                 [numCodes]uint64
}

// load returns the counts. They are read one by one, not as of one moment.
func (of *Method) load() (c counts) {
	for i := range of.cells {
		at := &of.cells[i]
		c.started += at.started.Load()
		c.received += at.received.Load()
		c.sent += at.sent.Load()
		for code := range c.handled {
			c.handled[code] += at.handled[code].Load()
		}
	}
	if of.kind == unary {
		c.received, c.sent = c.started, c.handled[codes.OK]
	}
	return c
}
