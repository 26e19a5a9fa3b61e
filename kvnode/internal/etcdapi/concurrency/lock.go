package concurrency

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	pb "github.com/leaderlease/go/kvnode/internal/etcdapi/concurrency/v3lockpb"
)

// lockServer is the Lock service.
type lockServer struct {
	*Services
	pb.UnsafeLockServer
}

// Lock waits until the lock is the caller's.
func (s *lockServer) Lock(ctx context.Context, r *pb.LockRequest) (*pb.LockResponse, error) {
	ctx, done := s.waiting(ctx)
	defer done()
	l, err := s.lineUp(ctx, r.GetName(), r.GetLease(), concurrency.ErrSessionExpired)
	if err != nil {
		return nil, clientError(ctx, err)
	}
	defer l.leave()
	m := concurrency.NewMutex(l.session, string(r.GetName()))
	err = m.Lock(l.ctx)
	if err == nil {
		err = s.stillOwner(l.ctx, m, string(r.GetName()))
	}
	if err != nil {
		s.abandon(l.session, r.GetLease())
		return nil, clientError(l.ctx, err)
	}
	return &pb.LockResponse{Header: m.Header(), Key: []byte(m.Key())}, nil
}

// stillOwner returns nil if m has the lock now and its caller can hear of it. The
// library looks, after a wait, for a key of that name, and another call with the
// same TTL lease may have deleted ours and put one that stands behind others.
func (s *Services) stillOwner(ctx context.Context, m *concurrency.Mutex, name string) error {
	if err := ctx.Err(); err != nil {
		owner := m.IsOwner()
		if owner.GetCompare().GetCreateRevision() == m.Header().GetRevision() { // this call has put the key
			_ = m.Unlock(s.client.Ctx()) // the end of the TTL lease does it otherwise
		}
		return err
	}
	resp, err := s.client.Txn(ctx).If(m.IsOwner()).Then(clientv3.OpGet(name+"/", clientv3.WithFirstCreate()...)).Commit()
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return concurrency.ErrSessionExpired
	}
	if first := resp.Responses[0].GetResponseRange().GetKvs(); len(first) != 1 || string(first[0].GetKey()) != m.Key() {
		return concurrency.ErrSessionExpired
	}
	return nil
}

// Unlock deletes the key of a lock.
func (s *lockServer) Unlock(ctx context.Context, r *pb.UnlockRequest) (*pb.UnlockResponse, error) {
	resp, err := s.client.Delete(ctx, string(r.GetKey()))
	if err != nil {
		return nil, clientError(ctx, err)
	}
	return &pb.UnlockResponse{Header: resp.Header}, nil
}
