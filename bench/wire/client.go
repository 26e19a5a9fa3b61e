package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/bench/load"
)

// The metadata and trailers of a read; kvnode/etcdapi has the same names.
const (
	metadataMode     = "x-lease-read"
	trailerPath      = "x-lease-read-path"
	trailerRemaining = "x-lease-remaining-ms"
	rangeMethod      = "/etcdserverpb.KV/Range"
)

// Mode is how a read asks to be served.
type Mode struct {
	// Lease is the value of x-lease-read: auto, lease, read-index or log.
	Lease string
	// Serializable asks for local state, in etcd's own way.
	Serializable bool
}

// The modes by name. A server that is not kvnode knows Auto and Serializable.
var (
	Auto         = Mode{Lease: "auto"}
	ByLease      = Mode{Lease: "lease"}
	ByReadIndex  = Mode{Lease: "read-index"}
	ByLog        = Mode{Lease: "log"}
	Serializable = Mode{Lease: "auto", Serializable: true}
)

// streamsPerConn keeps below the 256 requests that kvnode serves on one
// connection at a time. Every server gets the same number of connections.
const streamsPerConn = 128

// Conns are connections to one endpoint.
type Conns struct {
	Endpoint string
	clients  []*clientv3.Client
	keys     []string
	value    string
}

// Keys are the names of the keys, and the length of their values.
type Keys struct {
	Count    int
	ValueLen int
}

func (k Keys) names() []string {
	all := make([]string, k.Count)
	for i := range all {
		all[i] = fmt.Sprintf("/bench/%08d", i)
	}
	return all
}

// Dial connects to one endpoint for a number of concurrent requests.
func Dial(endpoint string, concurrent int, keys Keys) (*Conns, error) {
	c := &Conns{Endpoint: endpoint, keys: keys.names(), value: string(make([]byte, keys.ValueLen))}
	for range (concurrent + streamsPerConn - 1) / streamsPerConn {
		client, err := newClient(endpoint)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.clients = append(c.clients, client)
	}
	return c, nil
}

func newClient(endpoints ...string) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints,
		// Each request is made once: what fails is counted.
		MaxUnaryRetries: 1,
		Logger:          zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(notePath),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.3, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
				MinConnectTimeout: time.Second,
			}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("client of %v: %w", endpoints, err)
	}
	return c, nil
}

// Close closes the connections.
func (c *Conns) Close() error {
	var errs []error
	for _, client := range c.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// Reader returns a Target whose clients read in a mode.
func (c *Conns) Reader(mode Mode) load.Target { return target{c, mode} }

type target struct {
	conns *Conns
	mode  Mode
}

// Client implements load.Target.
func (t target) Client(i int) load.Client {
	c := &client{to: t.conns.clients[i%len(t.conns.clients)], conns: t.conns}
	if t.mode.Serializable {
		c.opts = append(c.opts, clientv3.WithSerializable())
	}
	c.md = metadata.Pairs(metadataMode, t.mode.Lease)
	return c
}

type client struct {
	to    *clientv3.Client
	conns *Conns
	opts  []clientv3.OpOption
	md    metadata.MD
}

// Read implements load.Client.
func (c *client) Read(ctx context.Context, key int) (load.Seen, error) {
	var path load.Path
	ctx = metadata.NewOutgoingContext(context.WithValue(ctx, pathKey{}, &path), c.md)
	resp, err := c.to.Get(ctx, c.conns.keys[key], c.opts...)
	if err != nil {
		return load.Seen{}, err
	}
	seen := load.Seen{Path: path}
	if len(resp.Kvs) > 0 {
		seen.Version = uint64(resp.Kvs[0].GetModRevision())
	}
	return seen, nil
}

// Write implements load.Client.
func (c *client) Write(ctx context.Context, key int) (uint64, error) {
	resp, err := c.to.Put(ctx, c.conns.keys[key], c.conns.value)
	if err != nil {
		return 0, err
	}
	return uint64(resp.Header.GetRevision()), nil
}

// pathKey finds in a context where a read wants to have its path.
type pathKey struct{}

// ErrTrailer says that a server claims a lease read without saying for how long
// the lease was good.
var ErrTrailer = errors.New("wire: lease read without " + trailerRemaining)

// notePath takes the path of a read from the trailers.
func notePath(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	into, ok := ctx.Value(pathKey{}).(*load.Path)
	if !ok || method != rangeMethod {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	var trailer metadata.MD
	if err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Trailer(&trailer))...); err != nil {
		return err
	}
	if values := trailer.Get(trailerPath); len(values) == 1 {
		*into = load.ParsePath(values[0])
	}
	if *into == load.PathLease && len(trailer.Get(trailerRemaining)) != 1 {
		return ErrTrailer
	}
	return nil
}

// Fill writes every key, so that reads find them.
func (c *Conns) Fill(ctx context.Context) error {
	const perTxn = 100
	for first := 0; first < len(c.keys); first += perTxn {
		var puts []clientv3.Op
		for _, key := range c.keys[first:min(first+perTxn, len(c.keys))] {
			puts = append(puts, clientv3.OpPut(key, c.value))
		}
		if _, err := c.clients[0].Txn(ctx).Then(puts...).Commit(); err != nil {
			return fmt.Errorf("write keys to %s: %w", c.Endpoint, err)
		}
	}
	return nil
}
