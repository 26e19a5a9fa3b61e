package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/testcluster"
	kvnodeclient "github.com/leaderlease/go/kvnode/client"
	"github.com/leaderlease/go/kvnode/server/status"
)

// Names of read paths, as the trailer gives them, and of modes to ask for.
const (
	pathLease     = "lease"
	modeAuto      = "auto"
	modeLease     = "lease"
	modeReadIndex = "read-index"
	modeLog       = "log"
	modeLocal     = "serializable"
)

// client is etcd's client, connected to one member.
type client struct {
	*clientv3.Client
	m *testcluster.Member
	// written counts the bytes handed to the member's socket.
	written atomic.Int64
}

func newClient(m *testcluster.Member) (*client, error) {
	c := &client{m: m}
	var err error
	c.Client, err = m.Client(grpc.WithContextDialer(c.dial))
	return c, err
}

// close closes the connection.
func (c *client) close() error {
	if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("client of %s: %w", c.m.Name, err)
	}
	return nil
}

func (c *client) dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.m.Endpoint)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn, written: &c.written}, nil
}

// countedConn counts the bytes written to a connection.
type countedConn struct {
	net.Conn
	written *atomic.Int64
}

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// read reads one key in a mode. It is not recorded.
func (c *client) read(ctx context.Context, key, mode string) (kvclient.Answer, error) {
	return kvclient.Get(inMode(ctx, mode), c.Client, key)
}

// inMode returns a context for reads in a mode.
func inMode(ctx context.Context, mode string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, kvnodeclient.MetadataReadMode, mode)
}

// statusPatience is the timeout of a status request.
const statusPatience = time.Second

// status asks the member for its own view.
func (c *client) status(ctx context.Context) (status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	return status.Fetch(ctx, c.ActiveConnection())
}

// sameHash claims that all members hold the same data at one revision. Later revisions may differ: the load
// may go on meanwhile.
func (p *play) sameHash(ctx context.Context) error {
	var at kvclient.Answer
	err := until(ctx, func(ctx context.Context) (err error) {
		at, err = p.director.get(ctx, p.clients[p.leader], firstKey, modeAuto)
		return err
	})
	if err != nil {
		return err
	}
	hashes := make([]hash, len(p.clients))
	for i, c := range p.clients {
		if hashes[i], err = c.hash(ctx, at.Revision); err != nil {
			return fmt.Errorf("hash of %s: %w", c.m.Name, err)
		}
	}
	p.claimf(allEqual(hashes), "all three hold the same data: HashKV is %08x at revision %d", hashes[0].hash, at.Revision)
	return nil
}

// hash is a member's hash of its data, with the compacted revision, since
// compacted revisions are not hashed.
type hash struct {
	member    string
	hash      uint32
	compacted int64
}

func (c *client) hash(ctx context.Context, revision int64) (h hash, err error) {
	err = until(ctx, func(ctx context.Context) error {
		r, err := c.HashKV(ctx, c.m.Endpoint, revision)
		if err == nil {
			h = hash{c.m.Name, r.Hash, r.CompactRevision}
		}
		return err // it may not have that revision yet
	})
	return h, err
}

func allEqual(hashes []hash) error {
	for _, h := range hashes {
		if first := hashes[0]; h.hash != first.hash || h.compacted != first.compacted {
			return fmt.Errorf("%s has %08x (compacted at %d), %s has %08x (compacted at %d)",
				first.member, first.hash, first.compacted, h.member, h.hash, h.compacted)
		}
	}
	return nil
}
