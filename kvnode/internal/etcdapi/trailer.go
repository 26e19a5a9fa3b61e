package etcdapi

import (
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// pathLease is the only path that has a remaining time.
const pathLease = "lease"

// leaseTrailers keeps the trailers of lease reads by their remaining
// milliseconds. gRPC copies what it is given, so they may be shared.
var leaseTrailers [4096]atomic.Pointer[metadata.MD]

// otherTrailers are those of the other paths.
var otherTrailers = func() map[string]metadata.MD {
	all := make(map[string]metadata.MD)
	for _, path := range []string{"joined", "read_index", "forwarded", "log", "serializable"} {
		all[path] = metadata.Pairs(fastwire.TrailerReadPath, path)
	}
	return all
}()

// trailer returns what is said about r. It is shared and must not be changed.
func trailer(r kvnode.Read) metadata.MD {
	if r.Path != pathLease {
		if md, ok := otherTrailers[r.Path]; ok {
			return md
		}
		return metadata.Pairs(fastwire.TrailerReadPath, r.Path)
	}
	ms := max(int64(r.Remaining/time.Millisecond), 0)
	if ms >= int64(len(leaseTrailers)) {
		return leaseTrailer(ms)
	}
	slot := &leaseTrailers[ms]
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
