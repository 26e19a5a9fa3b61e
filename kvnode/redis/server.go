package redis

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
)

// Config is the configuration of a Server. Zero values stand for the defaults.
type Config struct {
	// KV and Lease are the cluster: KV and RetryLeaseClient of a clientv3.Client with client.DialOptions, without
	// which clientv3 repeats some writes. Both are required.
	KV    clientv3.KV
	Lease pb.LeaseClient
	// Log is slog.Default by default.
	Log *slog.Logger
	// Registerer takes the metrics, if it is set.
	Registerer prometheus.Registerer
	// Timeout limits the requests to the cluster for one command, 10 s by default.
	Timeout time.Duration
	// ReadTimeout is how long the rest of a command, or the next command of a MULTI, may take to arrive, 30 s by
	// default. Otherwise a client may be idle.
	ReadTimeout time.Duration
	// WriteTimeout is how long a client may take to accept a reply until it is dropped, 10 s by default, and more for
	// a long reply.
	WriteTimeout time.Duration
	// MaxConns limits the connections, 1,000 by default.
	MaxConns int
	// MaxBulk limits the bytes of an argument, 1 MiB by default. etcd accepts requests up to 1.5 MiB.
	MaxBulk int
	// MaxConnMemory limits the bytes that a connection holds: its commands, MULTI, WATCH and the values of a reply,
	// 64 MiB by default. MaxMemory limits those of all connections together beyond 64 KiB of each, 512 MiB by default.
	// The values of a response of the cluster, 64 at most, count when they have arrived.
	MaxConnMemory, MaxMemory int
}

// Server serves the Redis protocol.
type Server struct {
	cfg     Config
	ctx     context.Context
	cancel  context.CancelFunc
	limits  limits
	memory  atomic.Int64 // the bytes that all connections share
	open    atomic.Int64 // connections
	ids     atomic.Int64
	leases  leases
	locks   keyLocks
	scripts scripts
	metrics *metrics
	rounded sync.Once // the log has said how an expiry is rounded
	// logLimit limits the log lines that clients cause.
	logLimit rate.Sometimes

	mu    sync.Mutex
	tasks sync.WaitGroup // Serve and connections. Serve begins under mu, so not after Close.
}

// New returns a server without listeners.
func New(cfg Config) (*Server, error) {
	if cfg.KV == nil || cfg.Lease == nil {
		return nil, errors.New("redis: Config needs KV and Lease")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, 30*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 10*time.Second)
	cfg.MaxConns = cmp.Or(cfg.MaxConns, 1000)
	cfg.MaxBulk = cmp.Or(cfg.MaxBulk, 1<<20)
	cfg.MaxConnMemory = cmp.Or(cfg.MaxConnMemory, 64<<20)
	cfg.MaxMemory = cmp.Or(cfg.MaxMemory, 512<<20)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	s := &Server{
		cfg: cfg, limits: newLimits(cfg), metrics: newMetrics(),
		logLimit: rate.Sometimes{First: 10, Interval: time.Second},
	}
	if cfg.Registerer != nil {
		if err := s.metrics.register(cfg.Registerer); err != nil {
			return nil, err
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.leases = leases{s: s, slots: make(chan struct{}, revokers)}
	return s, nil
}

// Serve accepts connections until Close or an error.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return errors.Join(net.ErrClosed, l.Close())
	}
	s.tasks.Add(1)
	s.mu.Unlock()
	defer s.tasks.Done()
	defer context.AfterFunc(s.ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		switch {
		case err != nil && s.ctx.Err() != nil:
			return nil // Close has closed the listener
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // such as too many open files
			s.logLimit.Do(func() { s.cfg.Log.Warn("cannot accept a connection", "error", err) })
			select {
			case <-time.After(100 * time.Millisecond):
			case <-s.ctx.Done():
			}
		default:
			s.tasks.Go(func() { s.serveConn(c) })
		}
	}
}

// serveConn serves a connection, or refuses it above the limit.
func (s *Server) serveConn(c net.Conn) {
	defer func() {
		if r := recover(); r != nil { // other connections go on
			s.cfg.Log.Error("a connection has failed", "panic", r, "stack", string(debug.Stack()))
		}
		_ = c.Close()
	}()
	defer s.open.Add(-1)
	if s.open.Add(1) > int64(s.cfg.MaxConns) {
		s.metrics.refused.Inc()
		return // a TLS client would not understand an error
	}
	s.metrics.conns.Inc()
	defer s.metrics.conns.Dec()
	defer context.AfterFunc(s.ctx, func() { _ = c.Close() })()
	newConn(s, c).serve()
}

// Close closes listeners and connections and waits for the commands under way, which fail.
func (s *Server) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.tasks.Wait()
	s.leases.tasks.Wait()
}

const (
	// maxBatch limits the commands of a pipeline that are taken before they run.
	maxBatch = 128
	// maxRun and maxRunBytes limit the commands of a pipeline that are one transaction. Their values fit into a
	// connection's memory.
	maxRun      = 32
	maxRunBytes = 1 << 20
	// minRate is how many bytes of a long reply a client must accept in a second.
	minRate = 64 << 10
)

// conn is a connection. Its goroutine reads commands, and runs those that have arrived before it waits for more.
type conn struct {
	s     *Server
	c     net.Conn
	p     *parser
	w     *bufio.Writer
	mem   memory
	batch [][]string // commands to run
	id    int64
	resp3 bool
	quit  bool
	// writeBy is when the client must have accepted the current reply. It is zero before the first write.
	writeBy time.Time

	multi   bool
	broken  bool // a command of the MULTI was refused
	queued  [][]string
	watched map[string]int64 // mod revisions

	locked []string // keys, by the transaction that runs
}

func newConn(s *Server, c net.Conn) *conn {
	n := &conn{s: s, c: c, id: s.ids.Add(1), mem: memory{limits: &s.limits, all: &s.memory}}
	n.p, n.w = newParser(n, &n.mem), bufio.NewWriterSize(n, 16<<10)
	return n
}

func (c *conn) serve() {
	defer c.mem.close()
	err := c.handshake()
	for err == nil && !c.quit {
		var args []string
		if args, err = c.p.next(); err != nil {
			break
		}
		c.batch = append(c.batch, args)
		c.mem.move(parsing, batched)
		if len(c.batch) == maxBatch { // the bytes are limited by the read buffer: Read runs the batch
			c.runBatch()
		}
	}
	c.runBatch()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = protocolError("the command or MULTI is not complete after %v", c.s.cfg.ReadTimeout)
	}
	if wrong, is := errors.AsType[failure](err); is && !c.quit {
		c.reply(wrong)
	}
	_ = c.w.Flush() // the connection ends in any case
}

// handshake does the handshake of TLS, which has no time limit otherwise.
func (c *conn) handshake() error {
	secured, is := c.c.(interface{ HandshakeContext(context.Context) error })
	if !is {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.ReadTimeout)
	defer cancel()
	return secured.HandshakeContext(ctx)
}

// Read reads for the parser, once all commands that have arrived are answered.
func (c *conn) Read(b []byte) (int, error) {
	c.runBatch()
	if err := c.w.Flush(); err != nil {
		return 0, err
	}
	if c.quit {
		return 0, io.EOF
	}
	if (c.p.started || c.multi) && c.p.deadline.IsZero() {
		c.p.deadline = time.Now().Add(c.s.cfg.ReadTimeout)
	}
	if err := c.c.SetReadDeadline(c.p.deadline); err != nil { // without a command, zero
		return 0, err
	}
	return c.c.Read(b)
}

// Write drops a client that does not read, or reads a reply slower than minRate.
func (c *conn) Write(b []byte) (int, error) {
	if c.writeBy.IsZero() {
		c.writeBy = time.Now().Add(c.s.cfg.WriteTimeout)
	}
	c.writeBy = c.writeBy.Add(time.Duration(len(b)) * time.Second / minRate)
	if err := c.c.SetWriteDeadline(c.writeBy); err != nil {
		return 0, err
	}
	return c.c.Write(b)
}

// runBatch runs commands in order. Adjacent plain GETs and adjacent plain SETs are one transaction each.
func (c *conn) runBatch() {
	for rest := c.batch; len(rest) > 0 && !c.quit; {
		n := 1
		if !c.multi {
			n = similar(rest)
		}
		c.run(rest[:n])
		rest = rest[n:]
		c.mem.free(values)
	}
	clear(c.batch)
	c.batch = c.batch[:0]
	c.mem.free(batched)
}

// similar returns how many commands at the front of a batch may be one transaction.
func similar(batch [][]string) int {
	plain := func(args []string) string {
		name := strings.ToUpper(args[0])
		if len(args) > 1 && args[1] != "" && len(args[1]) <= maxKey && (name == "GET" && len(args) == 2 || name == "SET" && len(args) == 3) {
			return name
		}
		return ""
	}
	first, n, size := plain(batch[0]), 1, len(batch[0][len(batch[0])-1])
	for first != "" && n < min(len(batch), maxRun) && plain(batch[n]) == first {
		if size += len(batch[n][1]) + len(batch[n][len(batch[n])-1]); size > maxRunBytes {
			break
		}
		n++
	}
	return n
}

// run runs a command, or similar ones with keys, and writes the replies.
func (c *conn) run(cmds [][]string) {
	name := strings.ToUpper(cmds[0][0])
	began := time.Now()
	cmd, known := commands[name]
	if !known {
		name = "unknown" // bounds the metric
	}
	replies := c.dispatch(name, cmd, cmds)
	if f, is := replies[0].(failure); is && len(cmds) > 1 && strings.HasPrefix(string(f), "ERR ") && strings.Contains(string(f), limitText) {
		for i := range cmds { // nothing was written, and each alone may be within the limit
			c.run(cmds[i : i+1])
			c.mem.free(values)
		}
		return
	}
	for _, r := range replies {
		_, failed := r.(failure)
		c.s.metrics.command(name, failed, time.Since(began))
		c.reply(r)
	}
}

func (c *conn) reply(r any) {
	c.writeBy = time.Time{}
	writeReply(c.w, r, c.resp3)
}

func (c *conn) dispatch(name string, cmd command, cmds [][]string) []any {
	wrong := c.check(name, cmd, cmds[0])
	switch {
	case wrong != "":
		c.broken = c.broken || c.multi
		return []any{wrong}
	case cmd.do == nil:
		return []any{cmd.local(c, cmds[0])}
	case c.multi:
		return []any{c.queue(cmds[0])}
	}
	began := time.Now()
	replies, err := c.transact(cmds, nil)
	if err != nil {
		c.s.failed(cmds[0], began, err)
		return slices.Repeat([]any{err}, len(cmds))
	}
	return replies
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
