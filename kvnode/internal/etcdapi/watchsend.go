package etcdapi

import (
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

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
