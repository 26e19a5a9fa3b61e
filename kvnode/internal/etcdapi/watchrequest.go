package etcdapi

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode/internal/store/watch"
)

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
