package bench_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease"
)

// Mode is a way to serve linearizable reads.
type Mode string

const (
	// Lease reads with leaderlease: Lease.Read.
	Lease Mode = "lease"
	// ReadIndex reads as etcd does: raft's ReadOnlySafe, one round for all reads
	// that wait, one round at a time.
	ReadIndex Mode = "readindex"
)

// Voters is the number of nodes.
const Voters = 3

// tick is that of an ordinary deployment: the lease lasts 900 ms, and the leader
// renews it every 100 ms.
const tick = 100 * time.Millisecond

const (
	electionTick  = 10
	heartbeatTick = 1
)

// Cluster is three bare RawNodes in one process, each with its raft loop in a goroutine, over loopback TCP. The
// first one leads.
//
// What the modes have in common is everything but the question "may I answer?": raft's configuration, transport,
// storage (in memory), state machine (one register) and the loop itself. No mode has a disk or a real network, so
// differences are the largest that one can see; a round trip between machines makes every mode but the lease slower.
//
// README.md says what was measured and how to repeat it.
type Cluster struct {
	nodes []*node
	links []*link
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// Start returns a running cluster that serves reads in a mode. Only Lease runs the
// filter.
func Start(ctx context.Context, mode Mode) (*Cluster, error) {
	running, stop := context.WithCancel(context.Background())
	c := &Cluster{stop: stop}
	for id := range uint64(Voters) {
		n, err := newNode(id+1, mode)
		if err != nil {
			stop()
			return nil, err
		}
		c.nodes = append(c.nodes, n)
	}
	if err := c.connect(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	for _, l := range c.links {
		c.wg.Go(l.receive)
	}
	for _, n := range c.nodes {
		c.wg.Go(func() { n.run(running) })
		c.wg.Go(func() { n.reads.run(running) })
	}
	if err := c.elect(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// connect links each pair of nodes with one connection.
func (c *Cluster) connect() error {
	for i, a := range c.nodes {
		for _, b := range c.nodes[i+1:] {
			ends, err := connectPair(a, b)
			if err != nil {
				return fmt.Errorf("connect node %d to node %d: %w", a.id, b.id, err)
			}
			c.links = append(c.links, ends...)
		}
	}
	return nil
}

// elect makes the first node leader and waits until it serves a read.
func (c *Cluster) elect(ctx context.Context) error {
	for {
		if c.nodes[0].leads.Load() {
			if _, err := c.Write(ctx); err != nil {
				return err
			}
			_, err := c.Read(ctx)
			return err
		}
		select {
		case c.nodes[0].campaign <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("wait for node 1 to lead: %w", ctx.Err())
		}
		time.Sleep(tick / 2)
	}
}

// Read returns the register's version, linearizably, from the first node.
func (c *Cluster) Read(ctx context.Context) (uint64, error) { return c.nodes[0].read(ctx) }

// Write gives the register a new version and returns it once the first node has
// applied it.
func (c *Cluster) Write(ctx context.Context) (version uint64, err error) {
	return c.nodes[0].write(ctx)
}

// Lease returns the first node's lease, nil in mode ReadIndex.
func (c *Cluster) Lease() *leaderlease.Lease { return c.nodes[0].lease }

// Close stops the nodes and waits for them.
func (c *Cluster) Close() error {
	c.stop()
	var errs []error
	for _, l := range c.links {
		errs = append(errs, l.conn.Close())
	}
	c.wg.Wait()
	return errors.Join(errs...)
}

func raftConfig(id uint64, storage raft.Storage) *raft.Config {
	return &raft.Config{
		ID: id, ElectionTick: electionTick, HeartbeatTick: heartbeatTick, Storage: storage, Applied: 1,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256,
		PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
		Logger: &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	}
}

// newStorage returns the storage of a member that was bootstrapped with all
// voters.
func newStorage() (*raft.MemoryStorage, error) {
	s := raft.NewMemoryStorage()
	conf := &raftpb.ConfState{}
	for id := range uint64(Voters) {
		conf.Voters = append(conf.Voters, id+1)
	}
	err := s.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf,
	}})
	return s, err
}

// link is one node's end of a connection to a peer. Messages travel as their
// length in four bytes and their protobuf encoding.
type link struct {
	conn  net.Conn
	inbox chan<- *raftpb.Message // of the node at this end

	// The raft loop of the node at this end writes.
	out *bufio.Writer
	buf []byte
}

// connectPair connects a and b and returns both ends.
func connectPair(a, b *node) ([]*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	accepted, err := listener.Accept()
	if err = errors.Join(err, listener.Close()); err != nil {
		return nil, errors.Join(err, dialled.Close())
	}
	a.peers[b.id], b.peers[a.id] = newLink(dialled, a), newLink(accepted, b)
	return []*link{a.peers[b.id], b.peers[a.id]}, nil
}

func newLink(conn net.Conn, n *node) *link {
	return &link{conn: conn, inbox: n.inbox, out: bufio.NewWriterSize(conn, 1<<16)}
}

// write buffers m. Errors stick to the writer and show when it is flushed.
func (l *link) write(m *raftpb.Message) error {
	var err error
	l.buf = append(l.buf[:0], 0, 0, 0, 0)
	if l.buf, err = (proto.MarshalOptions{}).MarshalAppend(l.buf, m); err != nil {
		return fmt.Errorf("marshal %v: %w", m.GetType(), err)
	}
	binary.BigEndian.PutUint32(l.buf, uint32(len(l.buf)-4))
	_, err = l.out.Write(l.buf)
	return err
}

// receive passes messages on until the connection ends. A message that finds
// the inbox full is lost, so that two nodes never wait for each other.
func (l *link) receive() {
	in := bufio.NewReaderSize(l.conn, 1<<16)
	var head [4]byte
	var buf []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(head[:]))
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(in, buf); err != nil {
			return
		}
		m := &raftpb.Message{}
		if err := proto.Unmarshal(buf, m); err != nil {
			return
		}
		select {
		case l.inbox <- m:
		default:
		}
	}
}
