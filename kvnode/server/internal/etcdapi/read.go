package etcdapi

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// waitForRead returns when the store may answer the read of ctx, and sets the trailers. Read the
// value from the store afterwards, never before.
func (a *API) waitForRead(ctx context.Context, serializable bool) error {
	values := metadata.ValueFromIncomingContext(ctx, fastwire.MetadataReadMode)
	mode, err := requestReadMode(values, serializable)
	if err != nil {
		return err
	}
	read, err := a.node.Read(ctx, mode)
	if err != nil {
		return clientError(err)
	}
	if len(values) > 0 || !a.cfg.TrailersOnDemand {
		// An error means that ctx does not belong to a gRPC request.
		_ = grpc.SetTrailer(ctx, readTrailer(read))
	}
	return nil
}

// waitForReplay returns when this member has replayed its log, so that it may serve stale reads. Unlike
// Node.WaitForReplay it ends after RequestTimeout if ctx has no deadline.
func (a *API) waitForReplay(ctx context.Context) error {
	_, err := a.node.Read(ctx, kvnode.ReadSerializable)
	return clientError(err)
}

// requestReadMode returns the read mode of a request. A metadata value other than auto takes
// precedence over the request's own flag.
func requestReadMode(values []string, serializable bool) (kvnode.ReadMode, error) {
	mode := kvnode.ReadAuto
	if len(values) > 0 {
		var err error
		if mode, err = parseReadMode(values); err != nil {
			return 0, err
		}
	}
	if mode == kvnode.ReadAuto && serializable {
		return kvnode.ReadSerializable, nil
	}
	return mode, nil
}

func parseReadMode(values []string) (kvnode.ReadMode, error) {
	const choices = "auto, lease, read-index, log or serializable"
	if len(values) > 1 {
		return 0, status.Errorf(codes.InvalidArgument, "kvnode: metadata %s has %d values (%s), want one of %s",
			fastwire.MetadataReadMode, len(values), strings.Join(values, ", "), choices)
	}
	mode, err := kvnode.ParseReadMode(values[0])
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "kvnode: metadata %s is %q, want %s", fastwire.MetadataReadMode, values[0], choices)
	}
	return mode, nil
}

// pathLease is the only path with a remaining time.
const pathLease = "lease"

// leaseTrailerCache keeps the trailers of lease reads by their remaining milliseconds. gRPC
// copies trailers, so requests may share them.
var leaseTrailerCache [4096]atomic.Pointer[metadata.MD]

// otherTrailers has the trailers of each path without a lease.
var otherTrailers = func() map[string]metadata.MD {
	all := make(map[string]metadata.MD)
	for _, path := range []string{"joined", "read_index", "forwarded", "log", "serializable"} {
		all[path] = metadata.Pairs(fastwire.TrailerReadPath, path)
	}
	return all
}()

// readTrailer returns the trailers of a read. They are shared; do not modify them.
func readTrailer(r kvnode.Read) metadata.MD {
	if r.Path != pathLease {
		if md, ok := otherTrailers[r.Path]; ok {
			return md
		}
		return metadata.Pairs(fastwire.TrailerReadPath, r.Path)
	}
	ms := max(int64(r.Remaining/time.Millisecond), 0)
	if ms >= int64(len(leaseTrailerCache)) {
		return leaseTrailer(ms)
	}
	slot := &leaseTrailerCache[ms]
	if md := slot.Load(); md != nil {
		return *md
	}
	md := leaseTrailer(ms)
	slot.Store(&md)
	return md
}

func leaseTrailer(ms int64) metadata.MD {
	return metadata.Pairs(fastwire.TrailerReadPath, pathLease, fastwire.TrailerRemaining, strconv.FormatInt(ms, 10))
}
