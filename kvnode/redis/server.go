package redis

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Config is the configuration of a Server. Zero values stand for the defaults.
type Config struct {
	// KV and Lease are the cluster, such as a clientv3.Client's. Both are required.
	KV    clientv3.KV
	Lease clientv3.Lease
	// Log is slog.Default by default.
	Log *slog.Logger
	// Registerer takes the metrics, if it is set.
	Registerer prometheus.Registerer
	// Timeout limits the requests to the cluster for one command, 10 s by default.
	Timeout time.Duration
	// WriteTimeout is how long a client may take to accept a reply until it is dropped, 10 s by default.
	WriteTimeout time.Duration
	// MaxConns limits the connections, 1,000 by default.
	MaxConns int
	// MaxBulk limits the bytes of an argument, 1 MiB by default. etcd accepts requests up to 1.5 MiB.
	MaxBulk int
	// MaxReply limits the values in one reply in bytes, 64 MiB by default.
	MaxReply int
}

const (
	// largeBuffers limits the memory of all read buffers above their first size.
	largeBuffers = 64 << 20
	// maxBatch and maxBatchBytes limit what is taken of a pipeline before its replies are sent.
	maxBatch      = 128
	maxBatchBytes = 1 << 20
)

// Server serves the Redis protocol.
type Server struct {
	cfg     Config
	ctx     context.Context
	cancel  context.CancelFunc
	budget  atomic.Int64
	ids     atomic.Int64
	leases  leases
	scripts scripts
	metrics *metrics

	mu    sync.Mutex
	open  map[net.Conn]struct{} // listeners are in ends
	ends  []net.Listener
	conns sync.WaitGroup
}

// New returns a server without listeners.
func New(cfg Config) (*Server, error) {
	if cfg.KV == nil || cfg.Lease == nil {
		return nil, errors.New("redis: Config needs KV and Lease")
	}
	orDefault(&cfg.Timeout, 10*time.Second)
	orDefault(&cfg.WriteTimeout, 10*time.Second)
	orDefault(&cfg.MaxConns, 1000)
	orDefault(&cfg.MaxBulk, 1<<20)
	orDefault(&cfg.MaxReply, 64<<20)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	s := &Server{cfg: cfg, metrics: newMetrics(), open: make(map[net.Conn]struct{})}
	if cfg.Registerer != nil {
		if err := s.metrics.register(cfg.Registerer); err != nil {
			return nil, err
		}
	}
	s.budget.Store(largeBuffers)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.leases.init(s)
	return s, nil
}

func orDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Serve accepts connections until Close or an error.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.ends = append(s.ends, l)
	s.mu.Unlock()
	if s.ctx.Err() != nil {
		return errors.Join(net.ErrClosed, l.Close())
	}
	for {
		c, err := l.Accept()
		switch {
		case err != nil && s.ctx.Err() != nil:
			return nil //nolint:nilerr // Close has closed the listener
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // such as too many open files
			s.cfg.Log.Warn("cannot accept a connection", "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-s.ctx.Done():
			}
		default:
			s.admit(c)
		}
	}
}

// admit serves a connection, or refuses it above the limit.
func (s *Server) admit(c net.Conn) {
	s.mu.Lock()
	full := len(s.open) >= s.cfg.MaxConns
	closed := s.ctx.Err() != nil
	if !full && !closed {
		s.open[c] = struct{}{}
		s.conns.Add(1)
	}
	s.mu.Unlock()
	if full || closed {
		s.metrics.refused.Inc()
		_ = c.Close() // a TLS client would not understand an error
		return
	}
	s.metrics.conns.Inc()
	go func() {
		defer s.conns.Done()
		defer func() {
			s.mu.Lock()
			delete(s.open, c)
			s.mu.Unlock()
			s.metrics.conns.Dec()
			_ = c.Close()
		}()
		newConn(s, c).serve()
	}()
}

// Close closes listeners and connections and waits for the commands under way, which fail.
func (s *Server) Close() {
	s.mu.Lock()
	s.cancel()
	for _, l := range s.ends {
		_ = l.Close()
	}
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.conns.Wait()
	s.leases.wait()
}

// conn is a connection. Its goroutine reads a batch of commands, runs it, and writes the replies.
type conn struct {
	s     *Server
	c     net.Conn
	p     *parser
	w     *bufio.Writer
	id    int64
	resp3 bool
	quit  bool

	multi   bool
	broken  bool // a command of the MULTI was refused
	queued  [][]string
	bytes   int
	watched map[string]int64 // mod revisions
}

func newConn(s *Server, c net.Conn) *conn {
	return &conn{
		s: s, c: c, id: s.ids.Add(1), p: newParser(c, s.cfg.MaxBulk, &s.budget),
		w: bufio.NewWriterSize(deadlineWriter{c, s.cfg.WriteTimeout}, 16<<10),
	}
}

// deadlineWriter drops a client that does not read.
type deadlineWriter struct {
	net.Conn

	timeout time.Duration
}

func (w deadlineWriter) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

func (c *conn) serve() {
	defer c.p.close()
	for !c.quit {
		batch, err := c.batch()
		c.runBatch(batch)
		if wrong, is := errors.AsType[failure](err); is {
			c.reply(wrong)
		}
		if c.w.Flush() != nil || err != nil {
			return
		}
	}
}

// batch reads one command and takes those that have arrived with it.
func (c *conn) batch() (batch [][]string, err error) {
	args, err := c.p.next()
	for size := 0; err == nil && args != nil; {
		batch = append(batch, args)
		for _, a := range args {
			size += len(a)
		}
		if len(batch) == maxBatch || size > maxBatchBytes {
			break
		}
		args, err = c.p.buffered()
	}
	return batch, err
}

// runBatch runs commands in order. Adjacent plain GETs and adjacent plain SETs are one request each.
func (c *conn) runBatch(batch [][]string) {
	for len(batch) > 0 && !c.quit {
		n := 0
		if !c.multi {
			n = max(c.runGets(batch), c.runSets(batch))
		}
		if n == 0 {
			c.run(batch[0])
			n = 1
		}
		batch = batch[n:]
	}
}

// run runs a command and writes its reply.
func (c *conn) run(args []string) {
	name := strings.ToUpper(args[0])
	began := time.Now()
	cmd, known := commands[name]
	if !known {
		name = "unknown" // bounds the metric
	}
	r := c.dispatch(name, cmd, args)
	_, failed := r.(failure)
	c.s.metrics.command(name, failed, time.Since(began))
	c.reply(r)
}

func (c *conn) reply(r any) { writeReply(c.w, r, c.resp3) }

func (c *conn) dispatch(name string, cmd command, args []string) any {
	wrong := c.check(name, cmd, args)
	switch {
	case wrong != "":
		c.broken = c.broken || c.multi
		return wrong
	case cmd.do == nil:
		return cmd.local(c, args)
	case c.multi:
		return c.queue(args)
	}
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	replies, err := c.s.transact(ctx, [][]string{args}, nil)
	if err != nil {
		return err
	}
	return replies[0]
}

// check returns why a command cannot run.
func (c *conn) check(name string, cmd command, args []string) failure {
	switch n := len(args); {
	case cmd.do == nil && cmd.local == nil:
		return failf("ERR unknown command '%.128s'", args[0])
	case cmd.arity > 0 && n != cmd.arity || n < -cmd.arity:
		return failf("ERR wrong number of arguments for '%s' command", strings.ToLower(name))
	case cmd.do == nil && c.multi && !cmd.inMulti:
		return failf("ERR %s is not supported inside MULTI", name)
	}
	return ""
}
