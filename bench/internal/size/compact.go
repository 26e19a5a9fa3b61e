package size

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/kvclient"
)

// Compacted is what a compaction with the option physical has come to.
type Compacted struct {
	Took time.Duration
	// Before and After are what of the database was in use before, and at once when
	// the compaction had returned.
	Before, After int64
}

// compactPatience is more than a server needs that frees millions of versions.
const compactPatience = 10 * time.Minute

// Compact compacts at revision, and waits until that has taken place.
func Compact(ctx context.Context, endpoint string, revision int64) (c Compacted, err error) {
	ctx, cancel := context.WithTimeout(ctx, compactPatience)
	defer cancel()
	client, err := kvclient.New(nil, []string{endpoint})
	if err != nil {
		return c, err
	}
	defer client.Close() //nolint:errcheck // nothing is under way
	before, err := client.Status(ctx, endpoint)
	if err != nil {
		return c, err
	}
	begun := time.Now()
	if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return c, err
	}
	c.Took = time.Since(begun)
	after, err := client.Status(ctx, endpoint)
	if err != nil {
		return c, err
	}
	c.Before, c.After = before.DbSizeInUse, after.DbSizeInUse
	return c, nil
}
