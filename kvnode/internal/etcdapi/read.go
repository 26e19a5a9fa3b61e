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

// waitForRead returns once the store may answer the read of ctx, and says in the
// trailers how that came about. Fetch the value afterwards, never before.
func (a *API) waitForRead(ctx context.Context, serializable bool) error {
	asked := metadata.ValueFromIncomingContext(ctx, fastwire.MetadataReadMode)
	mode, err := requestReadMode(asked, serializable)
	if err != nil {
		return err
	}
	read, err := a.node.Read(ctx, mode)
	if err != nil {
		return clientError(err)
	}
	if len(asked) > 0 || !a.cfg.TrailersOnDemand {
		// The error says that ctx is no gRPC request's; then nobody reads trailers.
		_ = grpc.SetTrailer(ctx, readTrailer(read))
	}
	return nil
}

// waitForReplay returns once what this member answers by itself is not older than what it
// had acknowledged before it was restarted.
func (a *API) waitForReplay(ctx context.Context) error {
	_, err := a.node.Read(ctx, kvnode.ReadSerializable)
	return clientError(err)
}

// requestReadMode returns how a request wants to be read. Its metadata, asked, goes
// before the request's own flag.
func requestReadMode(asked []string, serializable bool) (kvnode.ReadMode, error) {
	mode := kvnode.ReadAuto
	if len(asked) > 0 {
		var err error
		if mode, err = parseReadMode(asked); err != nil {
			return 0, err
		}
	}
	if mode == kvnode.ReadAuto && serializable {
		return kvnode.ReadSerializable, nil
	}
	return mode, nil
}

func parseReadMode(asked []string) (kvnode.ReadMode, error) {
	const choices = "auto, lease, read-index, log or serializable"
	if len(asked) > 1 {
		return 0, status.Errorf(codes.InvalidArgument, "kvnode: metadata %s has %d values (%s), want one of %s",
			fastwire.MetadataReadMode, len(asked), strings.Join(asked, ", "), choices)
	}
	mode, err := kvnode.ParseReadMode(asked[0])
	if err != nil {
		return 0, status.Errorf(codes.InvalidArgument, "kvnode: metadata %s is %q, want %s", fastwire.MetadataReadMode, asked[0], choices)
	}
	return mode, nil
}

// pathLease is the only path that has a remaining time.
const pathLease = "lease"

// leaseTrailerCache keeps the trailers of lease reads by their remaining
// milliseconds. gRPC copies what it is given, so they may be shared.
var leaseTrailerCache [4096]atomic.Pointer[metadata.MD]

// otherTrailers are those of the other paths.
var otherTrailers = func() map[string]metadata.MD {
	all := make(map[string]metadata.MD)
	for _, path := range []string{"joined", "read_index", "forwarded", "log", "serializable"} {
		all[path] = metadata.Pairs(fastwire.TrailerReadPath, path)
	}
	return all
}()

// readTrailer returns what is said about r. It is shared and must not be changed.
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
