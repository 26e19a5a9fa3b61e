package etcdapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/hashcheck"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// maintenanceServer implements the Maintenance service.
type maintenanceServer struct {
	*API
	pb.UnsafeMaintenanceServer
}

// Status describes this member. Its sizes are those that count towards the quota. It does not
// block, because operators use it to find out why other requests do.
func (s *maintenanceServer) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	node := s.node.Status()
	size, inUse := QuotaSize(s.node.Store())
	return &pb.StatusResponse{
		Header:           s.header(),
		Version:          Version,
		StorageVersion:   Version,
		DbSize:           size,
		DbSizeInUse:      inUse,
		DbSizeQuota:      s.cfg.QuotaBytes,
		Leader:           node.Leader,
		RaftIndex:        node.Commit,
		RaftTerm:         node.Term,
		RaftAppliedIndex: node.Applied,
		IsLearner:        node.Learner,
		Errors:           s.statusErrors(&node),
		DowngradeInfo:    &pb.DowngradeInfo{},
	}, nil
}

// statusErrors lists problems that an operator should know, with alarms in etcd's form.
func (s *maintenanceServer) statusErrors(node *kvnode.Status) []string {
	var all []string
	if node.Replaying {
		all = append(all, "kvnode: the member still applies its log after its start: serializable reads wait, and this revision may be older than one that it showed before")
	}
	if node.Leader == 0 {
		all = append(all, status.Convert(rpctypes.ErrGRPCNoLeader).Message())
	}
	for _, m := range s.node.Store().Alarms() {
		all = append(all, fmt.Sprintf("memberID:%d alarm:%s", m.GetMemberID(), m.GetAlarm()))
	}
	if node.DiskFull {
		all = append(all, kvnode.ErrDiskFull.Error())
	}
	if node.Err != nil {
		all = append(all, node.Err.Error())
	}
	return all
}

// Hash returns the hash of all keys. kvnode hashes nothing else, so Hash is HashKV of revision 0.
// It is equal on members with the same revision and the same compacted revision.
func (s *maintenanceServer) Hash(ctx context.Context, _ *pb.HashRequest) (*pb.HashResponse, error) {
	if err := s.waitForReplay(ctx); err != nil {
		return nil, err
	}
	h, err := s.node.Store().HashKV(0)
	if err != nil {
		return nil, clientError(err)
	}
	return &pb.HashResponse{Header: s.headerAt(h.Revision), Hash: h.Hash}, nil
}

// HashKV returns the hash of all keys at a revision. Revision 0 is the newest that this member
// has applied. The result is not linearizable: it serves to compare members.
func (s *maintenanceServer) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	if err := s.waitForReplay(ctx); err != nil {
		return nil, err
	}
	h, err := s.node.Store().HashKV(r.GetRevision())
	if err != nil {
		return nil, clientError(err)
	}
	return &pb.HashKVResponse{
		Header: s.headerAt(h.Revision), Hash: h.Hash, CompactRevision: h.CompactRevision, HashRevision: h.HashRevision,
	}, nil
}

// MoveLeader transfers leadership. Only the leader can do it.
func (s *maintenanceServer) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	if s.node.Leader() != s.node.ID() {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	if err := s.node.MoveLeader(ctx, r.GetTargetID()); err != nil {
		return nil, clientError(err)
	}
	return &pb.MoveLeaderResponse{Header: s.header()}, nil
}

// Defragment frees unused space. Clients call it right after a compaction. If the disk has no
// space for a checkpoint, the space that the previous checkpoint does not use is freed first.
func (s *maintenanceServer) Defragment(ctx context.Context, _ *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	saved := s.freeCompacted(ctx)
	if saved != nil && !errors.Is(saved, kvnode.ErrDiskFull) {
		return nil, clientError(saved)
	}
	if err := s.node.Store().Defragment(ctx); err != nil {
		return nil, clientError(errors.Join(saved, err))
	}
	if saved != nil {
		if err := s.node.Checkpoint(ctx); err != nil {
			return nil, clientError(fmt.Errorf("checkpoint after a defragmentation: %w", err))
		}
	}
	return &pb.DefragmentResponse{}, nil // without a header, as in etcd
}

// Downgrade is not supported.
func (*maintenanceServer) Downgrade(context.Context, *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	return nil, status.Error(codes.Unimplemented, "kvnode: a cluster cannot be downgraded")
}

// Alarm lists, raises or clears alarms. Listing is a linearizable read. Unlike in etcd it needs
// no entry in the log, since health checks list alarms often.
func (s *maintenanceServer) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	if r.GetAction() != pb.AlarmRequest_GET {
		return propose[*pb.AlarmResponse](ctx, s.API, &pb.InternalRaftRequest{Alarm: r})
	}
	if err := s.waitForRead(ctx, false); err != nil {
		return nil, err
	}
	resp := &pb.AlarmResponse{Header: s.header()}
	for _, m := range s.node.Store().Alarms() {
		if r.GetAlarm() == pb.AlarmType_NONE || r.GetAlarm() == m.GetAlarm() {
			resp.Alarms = append(resp.Alarms, m)
		}
	}
	return resp, nil
}

const (
	// snapshotChunk is the size of a message of a snapshot.
	snapshotChunk = 64 << 10
	// snapshotAlign is the unit of the file's size. Clients know that the checksum has
	// arrived if the size is not a multiple of it.
	snapshotAlign = 512
)

// Snapshot streams the applied state as a bbolt file, followed by its SHA-256. It makes a
// checkpoint first, or the backup would lack entries acknowledged since the last one.
func (s *maintenanceServer) Snapshot(_ *pb.SnapshotRequest, out grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	if err := s.waitForReplay(out.Context()); err != nil {
		return err
	}
	if err := s.node.Checkpoint(out.Context()); err != nil {
		return clientError(fmt.Errorf("checkpoint for a snapshot: %w", err))
	}
	snap, err := s.node.Store().OpenSnapshot()
	if err != nil {
		return clientError(fmt.Errorf("open a snapshot: %w", err))
	}
	defer func() { _ = snap.Close() }()

	begun := time.Now()
	pad := (snapshotAlign - snap.Size()%snapshotAlign) % snapshotAlign
	w := &snapshotSender{out: out, hash: sha256.New(), remaining: snap.Size() + pad}
	if _, err := snap.WriteTo(w); err != nil {
		return clientError(fmt.Errorf("send a snapshot: %w", err))
	}
	if err := w.finish(pad); err != nil {
		return clientError(err)
	}
	s.cfg.Logger.Info("snapshot sent", "bytes", snap.Size(), "revision", snap.Checkpoint().Revision, "took", time.Since(begun))
	return nil
}

// snapshotSender is a writer that sends the snapshot's messages.
type snapshotSender struct {
	out       grpc.ServerStreamingServer[pb.SnapshotResponse]
	hash      hash.Hash
	buf       []byte // shorter than snapshotChunk
	remaining int64  // to send, including buf
}

// Write sends p in chunks of snapshotChunk. It keeps the rest.
func (w *snapshotSender) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if w.buf == nil {
			// gRPC may keep a sent message for a while, so each has its own memory.
			w.buf = make([]byte, 0, snapshotChunk)
		}
		m := min(len(p), snapshotChunk-len(w.buf))
		w.buf = append(w.buf, p[:m]...)
		p, n = p[m:], n+m
		if len(w.buf) == snapshotChunk {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (w *snapshotSender) flush() error {
	if err := w.out.Context().Err(); err != nil {
		return err
	}
	w.remaining -= int64(len(w.buf))
	if w.remaining < 0 {
		return fmt.Errorf("the snapshot is %d bytes longer than announced", -w.remaining)
	}
	w.hash.Write(w.buf)
	blob := w.buf
	w.buf = nil
	return w.out.Send(&pb.SnapshotResponse{Blob: blob, RemainingBytes: uint64(w.remaining), Version: Version})
}

// finish pads the file, sends the rest and then the checksum.
func (w *snapshotSender) finish(pad int64) error {
	if _, err := w.Write(make([]byte, pad)); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	if w.remaining != 0 {
		return fmt.Errorf("the snapshot is %d bytes shorter than announced", w.remaining)
	}
	return w.out.Send(&pb.SnapshotResponse{Blob: w.hash.Sum(nil), Version: Version})
}

// Hashers returns all members of the cluster, this one first, for comparing their hashes.
func (a *API) Hashers() []*hashcheck.Member {
	self := &hashcheck.Member{
		ID: a.node.ID(), Hash: func(_ context.Context, revision int64) (store.Hash, error) { return a.node.Store().HashKV(revision) },
	}
	all := []*hashcheck.Member{self}
	for id, m := range a.node.Store().Members().ByID {
		if id == self.ID {
			self.Name = m.Name
			continue
		}
		all = append(all, &hashcheck.Member{
			ID: id, Name: m.Name, Hash: func(ctx context.Context, revision int64) (store.Hash, error) { return a.remoteHash(ctx, &m, revision) },
		})
	}
	slices.SortFunc(all[1:], func(x, y *hashcheck.Member) int { return cmp.Compare(x.ID, y.ID) })
	return all
}

// Dial returns a connection to a member's client URLs. It rejects responses of other clusters, if
// they have a header.
func (a *API) Dial(m *store.Member) (*grpc.ClientConn, error) {
	return a.dialURLs(m.ClientURLs)
}

// remoteHash returns another member's hash. It rejects the answer of any other member or cluster
// at the same address.
func (a *API) remoteHash(ctx context.Context, m *store.Member, revision int64) (h store.Hash, err error) {
	conn, err := a.Dial(m)
	if err != nil {
		return h, err
	}
	defer func() { _ = conn.Close() }() // the call is done
	r, err := pb.NewMaintenanceClient(conn).HashKV(ctx, &pb.HashKVRequest{Revision: revision})
	if err != nil {
		return h, err
	}
	if id := r.GetHeader().GetMemberId(); id != m.ID {
		return h, fmt.Errorf("kvnode: the client URLs %q of %s lead to member %x, not %x", m.ClientURLs, m.Name, id, m.ID)
	}
	return store.Hash{
		Hash: r.GetHash(), CompactRevision: r.GetCompactRevision(), HashRevision: r.GetHashRevision(), Revision: r.GetHeader().GetRevision(),
	}, nil
}
