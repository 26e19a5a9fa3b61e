package size

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/kvclient"
)

// Scan is a read of many keys.
type Scan struct {
	Name string
	// Opts are those of the read, after the prefix.
	Opts []clientv3.OpOption
}

// Scans returns the measured ones: their answers are short, and their cost may be high.
func Scans() []Scan {
	return []Scan{
		{"one key with limit 1", []clientv3.OpOption{clientv3.WithLimit(1)}},
		{"a page of 500", []clientv3.OpOption{clientv3.WithLimit(500)}},
		{"count", []clientv3.OpOption{clientv3.WithCountOnly()}},
	}
}

// Run makes the read n times and returns the median time. All must find as many
// keys as there are.
func (s *Scan) Run(ctx context.Context, endpoint string, n, keys int) (time.Duration, error) {
	client, err := kvclient.New(nil, []string{endpoint})
	if err != nil {
		return 0, err
	}
	defer client.Close() //nolint:errcheck // nothing is under way
	if err := askOnce(ctx, client); err != nil {
		return 0, err
	}
	opts := append([]clientv3.OpOption{clientv3.WithPrefix()}, s.Opts...)
	took := make([]time.Duration, n)
	for i := range took {
		begun := time.Now()
		resp, err := client.Get(ctx, Prefix, opts...)
		took[i] = time.Since(begun)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.Name, err)
		}
		if resp.Count != int64(keys) {
			return 0, fmt.Errorf("%s: %s counts %d keys, want %d", s.Name, endpoint, resp.Count, keys)
		}
	}
	slices.Sort(took)
	return took[n/2], nil
}

// Compacted is the result of a compaction with the option physical.
type Compacted struct {
	Took time.Duration
	// Before and After are the bytes of the database in use before, and as soon as the
	// compaction had returned.
	Before, After int64
}

// compactPatience is more than a server needs to free millions of versions.
const compactPatience = 10 * time.Minute

// Compact compacts at revision, and waits for the end of it.
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
