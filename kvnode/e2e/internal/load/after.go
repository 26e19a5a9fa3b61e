package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/internal/testcluster"
)

// Final reads all keys linearizably, as soon as m can.
func Final(ctx context.Context, m *testcluster.Member) (linz.Final, error) {
	var resp *clientv3.GetResponse
	err := m.Use(func(c *clientv3.Client) error {
		return Retry(ctx, func(ctx context.Context) (err error) {
			resp, err = c.Get(ctx, Prefix, clientv3.WithPrefix())
			return err
		})
	})
	if err != nil {
		return linz.Final{}, fmt.Errorf("read the final state from %s: %w", m.Name, err)
	}
	final := linz.Final{Revision: resp.Header.GetRevision(), Keys: make(map[string]linz.Version)}
	for _, kv := range resp.Kvs {
		final.Keys[string(kv.GetKey())] = linz.VersionOf([]*mvccpb.KeyValue{kv})
	}
	return final, nil
}

// Retry calls do until it succeeds. A request may fail while the leader changes or a member
// catches up, and succeed the next time.
func Retry(ctx context.Context, do func(context.Context) error) error {
	for {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := do(one)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lookups is the number of historical reads per request. etcd's limit is 128.
const lookups = 100

// Missing looks for each acknowledged write at its own revision in m's history,
// and returns those that are not there. The history must not be compacted.
func Missing(ctx context.Context, m *testcluster.Member, history []linz.Op) ([]linz.Op, error) {
	var missing []linz.Op
	err := m.Use(func(c *clientv3.Client) error {
		for some := range slices.Chunk(linz.Acknowledged(history), lookups) {
			lost, err := lookUp(ctx, c, some)
			if err != nil {
				return fmt.Errorf("read the past of %s: %w", m.Name, err)
			}
			missing = append(missing, lost...)
		}
		return nil
	})
	return missing, err
}

// lookUp returns the writes that are not at their revisions.
func lookUp(ctx context.Context, c *clientv3.Client, writes []linz.Op) ([]linz.Op, error) {
	var reads []clientv3.Op
	for i := range writes {
		reads = append(reads, clientv3.OpGet(writes[i].Key, clientv3.WithRev(writes[i].Revision), clientv3.WithSerializable()))
	}
	var resp *clientv3.TxnResponse
	err := Retry(ctx, func(ctx context.Context) (err error) {
		resp, err = c.Txn(ctx).Then(reads...).Commit()
		return err
	})
	if err != nil {
		return nil, err
	}
	var missing []linz.Op
	for i := range writes {
		if got := linz.VersionOf(resp.Responses[i].GetResponseRange().GetKvs()); got != writes[i].Version() {
			missing = append(missing, writes[i])
		}
	}
	return missing, nil
}

// ErrUnequal means that members disagree.
var ErrUnequal = errors.New("load: members hash differently")

// Hashes waits until each member has applied revision, and compares their hashes.
func Hashes(ctx context.Context, members []*testcluster.Member, revision int64) (uint32, error) {
	var first *clientv3.HashKVResponse
	for i, m := range members {
		h, err := hashOf(ctx, m, revision)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			first = h
		}
		if h.Hash != first.Hash || h.CompactRevision != first.CompactRevision {
			return 0, fmt.Errorf("%w at revision %d: %s has %x compacted at %d, %s has %x compacted at %d", ErrUnequal, revision,
				members[0].Name, first.Hash, first.CompactRevision, m.Name, h.Hash, h.CompactRevision)
		}
	}
	return first.Hash, nil
}

func hashOf(ctx context.Context, m *testcluster.Member, revision int64) (h *clientv3.HashKVResponse, err error) {
	err = m.Use(func(c *clientv3.Client) error {
		for {
			if h, err = c.HashKV(ctx, m.Endpoint, revision); err == nil {
				return nil
			}
			// A member that lags behind reports a future revision.
			select {
			case <-ctx.Done():
				return fmt.Errorf("hash of %s at revision %d: %w", m.Name, revision, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	return h, err
}
