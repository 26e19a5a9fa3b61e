package etcdapi

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store/watch"
)

// watchServer implements the Watch service.
type watchServer struct {
	*API
	pb.UnsafeWatchServer
}

// watchCall is one stream of the Watch service. One goroutine does everything except receiving,
// so its fields need no lock, and replies do not pile up for a client that does not read.
type watchCall struct {
	*API
	out    grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]
	stream *watch.Stream
}

// Watch serves any number of watchers until the client cancels the stream, or has closed its side
// and has no watcher left. The JSON gateway and some Rust clients close their side and keep
// reading. jetcd cancels its watcher and closes its side, but does not cancel the stream, which
// would otherwise stay open.
func (s *watchServer) Watch(out grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	// A watch is long-lived, so RequestTimeout does not limit this wait.
	if err := s.node.WaitForReplay(ctx); err != nil {
		return watchError(err)
	}
	c := &watchCall{API: s.API, out: out, stream: s.node.Watch().NewStream()}
	defer c.stream.Close()
	requests := make(chan *pb.WatchRequest)
	failed := make(chan error, 1)
	// Do not wait for this goroutine: its Recv may return only after this call has returned.
	go receiveWatches(ctx, out, requests, failed)
	return c.run(requests, failed)
}

// receiveWatches passes requests on until ctx ends or receiving fails, with io.EOF if the client
// has closed its side.
func receiveWatches(ctx context.Context, in grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse], requests chan<- *pb.WatchRequest, failed chan<- error) {
	for {
		r, err := in.Recv()
		if err != nil {
			failed <- err
			return
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return
		}
	}
}

// run alternates between sending events and handling requests.
func (c *watchCall) run(requests <-chan *pb.WatchRequest, failed <-chan error) error {
	tick := newProgressTicker(c.cfg.WatchProgressInterval)
	defer tick.Stop()
	ready := make(chan struct{})
	close(ready)
	closed := false // the client has closed its side
	for {
		more, err := c.sendNext()
		if err != nil {
			return watchError(err)
		}
		if closed && !more && c.stream.Len() == 0 {
			return nil
		}
		// If there is more to send, do not block.
		var now <-chan struct{}
		if more {
			now = ready
		}
		select {
		case <-c.out.Context().Done():
			return watchError(context.Cause(c.out.Context()))
		case err = <-failed:
			if closed = errors.Is(err, io.EOF); closed {
				err = nil
			}
		case r := <-requests:
			err = c.handle(r)
		case <-tick.C:
			c.stream.Tick()
		case <-c.stream.Ready():
		case <-now:
		}
		if err != nil {
			return watchError(err)
		}
	}
}

// sendNext sends the next response. more is false if there was none.
func (c *watchCall) sendNext() (more bool, err error) {
	r, more := c.stream.Next()
	if more {
		err = c.send(r)
	}
	return more, err
}

// watchError returns the error that ends a stream. After most Unavailable errors clientv3 continues at another
// member. After ErrGRPCWatchCanceled it gives up.
func watchError(err error) error {
	if errors.Is(err, context.Canceled) {
		return rpctypes.ErrGRPCWatchCanceled
	}
	return clientError(err)
}

func (c *watchCall) send(r watch.Response) error {
	m := &pb.WatchResponse{Header: c.headerAt(r.Revision), WatchId: r.ID, Events: r.Events}
	if r.Compacted != 0 {
		m.Canceled, m.CompactRevision, m.CancelReason = true, r.Compacted, rpctypes.ErrCompacted.Error()
	}
	if r.Fragment {
		return sendFragments(m, c.maxMessageBytes(), c.out.Send)
	}
	return c.out.Send(m)
}

// handle executes a request. Like etcd it ignores unknown requests of newer clients.
func (c *watchCall) handle(r *pb.WatchRequest) error {
	switch u := r.GetRequestUnion().(type) {
	case *pb.WatchRequest_CreateRequest:
		if u.CreateRequest != nil {
			return c.create(u.CreateRequest)
		}
	case *pb.WatchRequest_CancelRequest:
		return c.cancel(u.CancelRequest.GetWatchId(), u.CancelRequest != nil)
	case *pb.WatchRequest_ProgressRequest:
		if u.ProgressRequest != nil {
			c.stream.RequestProgress()
		}
	}
	return nil
}

// create adds a watcher. A rejection is a reply, and the stream continues.
func (c *watchCall) create(r *pb.WatchCreateRequest) error {
	if r.GetStartRevision() < 0 {
		return c.refuse(c.node.Store().Revision(), rpctypes.ErrCompacted)
	}
	id, revision, err := c.stream.Watch(watchOf(r))
	if err != nil {
		return c.refuse(revision, err)
	}
	return c.out.Send(&pb.WatchResponse{Header: c.headerAt(revision), WatchId: id, Created: true})
}

func (c *watchCall) refuse(revision int64, reason error) error {
	return c.out.Send(&pb.WatchResponse{
		Header: c.headerAt(revision), WatchId: watch.All, Created: true, Canceled: true, CancelReason: reason.Error(),
	})
}

// cancel confirms the end of a watcher. Like etcd it sends no reply for an unknown one.
func (c *watchCall) cancel(id int64, present bool) error {
	if !present || !c.stream.Cancel(id) {
		return nil
	}
	return c.out.Send(&pb.WatchResponse{Header: c.header(), WatchId: id, Canceled: true})
}

func watchOf(r *pb.WatchCreateRequest) watch.Request {
	key := r.GetKey()
	if len(key) == 0 {
		key = []byte{0} // the smallest key
	}
	return watch.Request{
		ID: r.GetWatchId(), Key: key, End: r.GetRangeEnd(), Start: r.GetStartRevision(),
		NoPut:    slices.Contains(r.GetFilters(), pb.WatchCreateRequest_NOPUT),
		NoDelete: slices.Contains(r.GetFilters(), pb.WatchCreateRequest_NODELETE),
		PrevKV:   r.GetPrevKv(), Progress: r.GetProgressNotify(), Fragment: r.GetFragment(),
	}
}

// MinWatchProgress is the minimum of Config.WatchProgressInterval, as in etcd.
const MinWatchProgress = 100 * time.Millisecond

// newProgressTicker adds up to a tenth of the interval at random, so that streams that were
// opened together do not tick together.
func newProgressTicker(interval time.Duration) *time.Ticker {
	return time.NewTicker(interval + rand.N(interval/10))
}

// sendFragments sends m in parts below limit. It does not split an event. All parts except the
// last have the Fragment flag. Clients join consecutive parts, so nothing may be sent in between.
func sendFragments(m *pb.WatchResponse, limit int, send func(*pb.WatchResponse) error) error {
	if len(m.GetEvents()) < 2 || proto.Size(m) < limit {
		return send(m)
	}
	rest := m.GetEvents()
	head := proto.Size(&pb.WatchResponse{Header: m.GetHeader(), WatchId: m.GetWatchId(), Fragment: true})
	for len(rest) > 0 {
		n, size := 0, head
		for ; n < len(rest); n++ {
			size += 1 + protowire.SizeBytes(proto.Size(rest[n])) // with its tag
			if n > 0 && size >= limit {
				break
			}
		}
		part := &pb.WatchResponse{Header: m.GetHeader(), WatchId: m.GetWatchId(), Events: rest[:n:n], Fragment: n < len(rest)}
		rest = rest[n:]
		if err := send(part); err != nil {
			return err
		}
	}
	return nil
}
