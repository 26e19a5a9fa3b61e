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

// watchServer is the Watch service.
type watchServer struct {
	*API
	pb.UnsafeWatchServer
}

// watchCall is one stream of the Watch service. One goroutine does everything
// but receive, so that nothing in it needs a lock, and a client that does not
// read cannot make it collect replies.
type watchCall struct {
	*API
	out    grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]
	stream *watch.Stream
}

// Watch serves any number of watchers until the client cancels the stream, or has closed its
// side of it and has no watcher left. Clients that close their side and read on are the gateway,
// whose requests end with their body, and some for Rust. jetcd cancels its watcher and closes its
// side, but does not cancel the stream, which would be open for ever.
func (s *watchServer) Watch(out grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	// A watch lasts, so the timeout of requests does not bound its wait.
	if err := s.node.WaitForReplay(ctx); err != nil {
		return watchError(err)
	}
	c := &watchCall{API: s.API, out: out, stream: s.node.Watch().NewStream(watch.Limits{})}
	defer c.stream.Close()
	requests := make(chan *pb.WatchRequest)
	failed := make(chan error, 1)
	// It ends when this call has returned, since receiving fails then, but no
	// sooner: it must not be waited for.
	go receiveWatches(ctx, out, requests, failed)
	return c.run(requests, failed)
}

// receiveWatches hands requests over until ctx ends or receiving fails: with io.EOF if the client
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

// run sends what there is to send, and does what is requested, in turns.
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
		// With more to send, only what is there already is looked at.
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

// sendNext sends the next response, if there is one.
func (c *watchCall) sendNext() (more bool, err error) {
	r, more := c.stream.Next()
	if more {
		err = c.send(r)
	}
	return more, err
}

// watchError returns what a stream ends with. Clients watch on at another member
// after an end that is Unavailable, and give up after any other.
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

func (c *watchCall) headerAt(revision int64) *pb.ResponseHeader {
	h := &pb.ResponseHeader{Revision: revision}
	c.fillHeader(h)
	return h
}

// handle does what r asks for. What it does not know it ignores, as etcd does: a
// newer client may ask for what it can do without.
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

// create adds a watcher. A refusal is a reply too, and the stream goes on.
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

// cancel confirms the end of a watcher. Like etcd it says nothing of one that
// there is not.
func (c *watchCall) cancel(id int64, present bool) error {
	if !present || !c.stream.Cancel(id) {
		return nil
	}
	return c.out.Send(&pb.WatchResponse{Header: c.header(), WatchId: id, Canceled: true})
}

func watchOf(r *pb.WatchCreateRequest) watch.Request {
	key := r.GetKey()
	if len(key) == 0 {
		key = []byte{0} // the smallest key there is
	}
	return watch.Request{
		ID: r.GetWatchId(), Key: key, End: r.GetRangeEnd(), Start: r.GetStartRevision(),
		NoPut:    slices.Contains(r.GetFilters(), pb.WatchCreateRequest_NOPUT),
		NoDelete: slices.Contains(r.GetFilters(), pb.WatchCreateRequest_NODELETE),
		PrevKV:   r.GetPrevKv(), Progress: r.GetProgressNotify(), Fragment: r.GetFragment(),
	}
}

// MinWatchProgress is the shortest Config.WatchProgressInterval, as in etcd: a
// shorter one is raised to it.
const MinWatchProgress = 100 * time.Millisecond

// newProgressTicker spreads the streams that connect together over a tenth of
// the interval.
func newProgressTicker(interval time.Duration) *time.Ticker {
	interval = max(interval, MinWatchProgress)
	return time.NewTicker(interval + rand.N(interval/10))
}

// sendFragments sends m in parts that stay below limit if they can: an event is
// not split. All but the last say that more follows. Clients put together what
// comes in a row, so nothing may be sent in between.
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
