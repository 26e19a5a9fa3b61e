package etcdapi

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const (
	// snapshotChunk is the size of a message of a snapshot.
	snapshotChunk = 64 << 10
	// snapshotAlign is what clients expect the file's size to be a multiple of:
	// they tell by it whether the checksum has arrived.
	snapshotAlign = 512
)

// Snapshot streams what is applied now: a bbolt file, and then its SHA-256. The
// state is made durable for the occasion, or a backup would lack what was
// acknowledged since the last checkpoint.
func (s *maintenanceServer) Snapshot(_ *pb.SnapshotRequest, out grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	if err := s.replayed(out.Context()); err != nil {
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

// snapshotSender sends what is written to it.
type snapshotSender struct {
	out       grpc.ServerStreamingServer[pb.SnapshotResponse]
	hash      hash.Hash
	buf       []byte // less than snapshotChunk
	remaining int64  // to send, buf included
}

// Write sends p in chunks of snapshotChunk; what is left over waits.
func (w *snapshotSender) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if w.buf == nil {
			// Sent messages may be kept for a while: each has its own memory.
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
		return fmt.Errorf("the snapshot is %d bytes longer than it said", -w.remaining)
	}
	w.hash.Write(w.buf)
	blob := w.buf
	w.buf = nil
	return w.out.Send(&pb.SnapshotResponse{Blob: blob, RemainingBytes: uint64(w.remaining), Version: Version})
}

// finish pads the file, sends what is left and then the checksum.
func (w *snapshotSender) finish(pad int64) error {
	if _, err := w.Write(make([]byte, pad)); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	if w.remaining != 0 {
		return fmt.Errorf("the snapshot is %d bytes shorter than it said", w.remaining)
	}
	return w.out.Send(&pb.SnapshotResponse{Blob: w.hash.Sum(nil), Version: Version})
}
