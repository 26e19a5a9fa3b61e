package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
)

// metadataForwarded marks a request that another member has forwarded. Its receiver answers or
// rejects it, so a request makes at most one hop.
const metadataForwarded = metadataMembers + "forwarded"

// metadataMembers is the prefix of metadata that only members send to each other.
const metadataMembers = "x-kvnode-"

// forwardPause is the time between two attempts, unless the leader changes earlier.
const forwardPause = 50 * time.Millisecond

// errNoMember means that no member of this cluster answers at a member's client URLs.
var errNoMember = errors.New("kvnode: no member of this cluster at its client URLs")

// leaderRequest is a request that only the leader can execute.
type leaderRequest[T any] struct {
	// local executes it on this member. It fails with kvnode.ErrNotLeader, and without effect, if
	// this member is not the leader.
	local func(context.Context) (T, error)
	// remote sends it to another member.
	remote func(context.Context, grpc.ClientConnInterface) (T, error)
	// repeatable is set if it may be executed twice.
	repeatable bool
}

// run executes the request on the leader, and retries while leadership moves, until ctx ends. It
// returns errors for clients.
func (w leaderRequest[T]) run(ctx context.Context, a *API) (T, error) {
	for {
		// Fetch the channel before reading the leader, or a change in between is missed.
		changed := a.node.LeaderChanged()
		out, err := w.attempt(ctx, a, changed)
		switch {
		case err == nil:
			return out, nil
		case ctx.Err() != nil:
			return out, a.contextError(ctx)
		case !w.isRetryable(err):
			return out, clientError(err)
		case isForwarded(ctx):
			return out, rpctypes.ErrGRPCNotLeader // the forwarding member retries
		}
		pause := time.NewTimer(forwardPause)
		select {
		case <-changed:
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

func (w leaderRequest[T]) attempt(ctx context.Context, a *API, changed <-chan struct{}) (out T, err error) {
	leader := a.node.Leader()
	switch {
	case leader == a.node.ID():
		return w.local(ctx)
	case leader == 0 || isForwarded(ctx):
		return out, kvnode.ErrNotLeader
	}
	conn, err := a.leader.connect(a, leader)
	if err != nil {
		return out, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, metadataForwarded, "1")
	if !w.repeatable {
		return w.remote(ctx, conn)
	}
	// A partitioned leader does not answer, and its successor is elected before the
	// connection fails.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return w.remote(ctx, conn)
}

// isRetryable reports whether a later attempt, or one at another member, may succeed.
func (w leaderRequest[T]) isRetryable(err error) bool {
	if errors.Is(err, kvnode.ErrNotLeader) || errors.Is(err, errNoMember) {
		return true
	}
	s, ok := status.FromError(err)
	if !ok {
		return false
	}
	if s.Message() == status.Convert(rpctypes.ErrGRPCNotLeader).Message() {
		return true
	}
	// If the connection fails, or closes because leadership moved, the outcome of the
	// request is unknown.
	return w.repeatable && (s.Code() == codes.Unavailable || s.Code() == codes.Canceled)
}

// contextError returns the client's error after ctx has ended.
func (a *API) contextError(ctx context.Context) error {
	if a.node.Leader() == 0 && !errors.Is(ctx.Err(), context.Canceled) {
		return rpctypes.ErrGRPCNoLeader
	}
	return clientError(ctx.Err())
}

func isForwarded(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, metadataForwarded)) > 0
}

// leaderConn is the connection to the leader, shared by all requests and created on first use.
type leaderConn struct {
	mu     sync.Mutex
	conn   *grpc.ClientConn // nil if there is none
	member uint64
	urls   []string
	closed bool
}

// connect returns the connection to member. The caller must not close it.
func (l *leaderConn) connect(a *API, member uint64) (grpc.ClientConnInterface, error) {
	urls := a.node.Store().Members().ByID[member].ClientURLs
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, kvnode.ErrStopped
	case l.conn != nil && l.member == member && slices.Equal(l.urls, urls):
		return l.conn, nil
	}
	conn, err := a.dialURLs(urls)
	if err != nil {
		return nil, err
	}
	l.closeLocked()
	l.conn, l.member, l.urls = conn, member, urls
	return conn, nil
}

func (l *leaderConn) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.closeLocked()
}

// closeLocked ends the requests in progress. Repeatable ones are retried.
func (l *leaderConn) closeLocked() {
	if l.conn != nil {
		_ = l.conn.Close() // nothing depends on it
		l.conn = nil
	}
}

// dialURLs returns a connection to a member. It uses the first client URL that answers.
func (a *API) dialURLs(urls []string) (*grpc.ClientConn, error) {
	var state resolver.State
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil && u.Port() != "" && strings.HasPrefix(u.Scheme, "http") { // no unix socket
			state.Addresses = append(state.Addresses, resolver.Address{Addr: u.Host, ServerName: u.Hostname()})
		}
	}
	if len(state.Addresses) == 0 {
		// The member has not published its URLs yet.
		return nil, fmt.Errorf("%w: %q", errNoMember, urls)
	}
	r := manual.NewBuilderWithScheme("kvnode-member")
	r.InitialState(state)
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(r)}
	options = slices.Concat(options, a.cfg.MemberDialOptions, clusterCheck(a.node.ClusterID()).options())
	conn, err := grpc.NewClient(r.Scheme()+":///member", options...)
	if err != nil {
		return nil, fmt.Errorf("kvnode: connect to the member at %q: %w", urls, err)
	}
	return conn, nil
}

// clusterCheck rejects answers of members of another cluster, which may have taken over the
// address of a former leader. Such a member would answer that a TTL lease does not exist.
type clusterCheck uint64

// options returns the interceptors of a connection that check its answers. leaderRequest.run
// retries a request that they reject.
func (c clusterCheck) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			if err := call(ctx, method, req, reply, conn, o...); err != nil {
				return verifyOrigin(ctx, method, conn, err)
			}
			return c.check(reply)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, d, conn, method, o...)
			return &checkedStream{stream, c, func(err error) error { return verifyOrigin(ctx, method, conn, err) }}, err
		}),
	}
}

func (c clusterCheck) check(reply any) error {
	r, ok := reply.(response)
	if ok && r.GetHeader().GetClusterId() != uint64(c) {
		return fmt.Errorf("%w: cluster %x answers, not %x", errNoMember, r.GetHeader().GetClusterId(), uint64(c))
	}
	return nil
}

// verifyOrigin returns err if a member of this cluster has sent it. Errors have no header, so
// verifyOrigin asks the member for its status. Otherwise the error of another cluster's member
// would be final.
func verifyOrigin(ctx context.Context, method string, conn *grpc.ClientConn, err error) error {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted:
		return err // the caller tries again, or clients know the code
	}
	if status.Convert(err).Message() == status.Convert(rpctypes.ErrGRPCNotLeader).Message() {
		return err // the next attempt goes to another member
	}
	if method == pb.Maintenance_Status_FullMethodName || errors.Is(err, io.EOF) {
		return err
	}
	if _, failed := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{}); failed != nil {
		return failed
	}
	return err
}

type checkedStream struct {
	grpc.ClientStream
	cluster      clusterCheck
	verifyOrigin func(error) error
}

// RecvMsg implements grpc.ClientStream.
func (s *checkedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return s.verifyOrigin(err)
	}
	return s.cluster.check(m)
}
