package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/kvclient"
)

// Fill is a load of puts.
type Fill struct {
	Endpoint string
	Keys     int
	// Versions is how many puts each key gets, one round of all keys after the other.
	Versions int
	ValueLen int
	Clients  int
	// PerTxn is how many puts are in a transaction: tools that move data sets have many.
	PerTxn int
}

// Filled is the result of a Fill.
type Filled struct {
	Took time.Duration
	// Failed counts transactions that failed and were sent again.
	Failed int64
	// Revision is that of the newest put.
	Revision int64
}

const (
	clientsPerConn = 4
	// A put that fails is sent again for up to putPatience: an election takes a second or
	// two, and the server must hold all keys.
	putPatience = 30 * time.Second
	putPause    = 50 * time.Millisecond
)

// Run makes the puts.
func (f *Fill) Run(ctx context.Context) (Filled, error) {
	conns, err := dial([]string{f.Endpoint}, (f.Clients+clientsPerConn-1)/clientsPerConn)
	if err != nil {
		return Filled{}, err
	}
	defer kvclient.Close(conns) //nolint:errcheck // nothing is under way
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, failed, revision atomic.Int64
	var wg sync.WaitGroup
	value := randomValue(f.ValueLen)
	begun := time.Now()
	for i := range f.Clients {
		wg.Go(func() {
			for n := int(next.Add(1) - 1); n < f.txns()*f.Versions; n = int(next.Add(1) - 1) {
				at, err := f.put(ctx, conns[i/clientsPerConn], f.puts(n, value), &failed)
				if err != nil {
					cancel(err)
					return
				}
				storeMax(&revision, at)
			}
		})
	}
	wg.Wait()
	return Filled{Took: time.Since(begun), Failed: failed.Load(), Revision: revision.Load()}, context.Cause(ctx)
}

// txns is how many transactions write each key once.
func (f *Fill) txns() int { return (f.Keys + f.PerTxn - 1) / f.PerTxn }

// puts returns the puts of transaction n.
func (f *Fill) puts(n int, value string) (ops []clientv3.Op) {
	first := n % f.txns() * f.PerTxn
	for i := first; i < min(first+f.PerTxn, f.Keys); i++ {
		ops = append(ops, clientv3.OpPut(keyName(i), value))
	}
	return ops
}

// put repeats a transaction until it succeeds.
func (f *Fill) put(ctx context.Context, client *clientv3.Client, puts []clientv3.Op, failed *atomic.Int64) (int64, error) {
	for begun := time.Now(); ; {
		resp, err := client.Txn(ctx).Then(puts...).Commit()
		if err == nil {
			return resp.Header.GetRevision(), nil
		}
		failed.Add(1)
		if ctx.Err() != nil || time.Since(begun) > putPatience {
			return 0, errors.Join(fmt.Errorf("put %d keys to %s: %w", len(puts), f.Endpoint, err), context.Cause(ctx))
		}
		time.Sleep(putPause)
	}
}

func storeMax(to *atomic.Int64, v int64) {
	for {
		if old := to.Load(); v <= old || to.CompareAndSwap(old, v) {
			return
		}
	}
}

// randomValue is a value that no server and no file system can compress.
func randomValue(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.N(256))
	}
	return string(b)
}

// Scan is a read of many keys.
type Scan struct {
	Name string
	// Opts are the options of the read, after the prefix.
	Opts []clientv3.OpOption
}

// Scans returns the measured scans: their answers are short, and their cost may be high.
func Scans() []Scan {
	return []Scan{
		{"one key with limit 1", []clientv3.OpOption{clientv3.WithLimit(1)}},
		{"a page of 500", []clientv3.OpOption{clientv3.WithLimit(500)}},
		{"count", []clientv3.OpOption{clientv3.WithCountOnly()}},
	}
}

// Run makes the read n times and returns the median time. Each read must find all
// keys.
func (s *Scan) Run(ctx context.Context, endpoint string, n, keys int) (time.Duration, error) {
	client, err := kvclient.New(nil, []string{endpoint})
	if err != nil {
		return 0, err
	}
	defer client.Close() //nolint:errcheck // nothing is under way
	if err := connect(ctx, client); err != nil {
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

// compactPatience is longer than a server needs to free millions of versions.
const compactPatience = 10 * time.Minute

// Compact compacts at revision with the option physical, and returns how long that takes.
func Compact(ctx context.Context, endpoint string, revision int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, compactPatience)
	defer cancel()
	client, err := kvclient.New(nil, []string{endpoint})
	if err != nil {
		return 0, err
	}
	defer client.Close() //nolint:errcheck // nothing is under way
	if err := connect(ctx, client); err != nil {
		return 0, err
	}
	begun := time.Now()
	_, err = client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	return time.Since(begun), err
}
