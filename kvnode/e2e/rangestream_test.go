package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/testcluster"
)

// fill writes n keys with values of size bytes, as many at a time as a
// transaction may hold, and returns the revision of the last ones.
func fill(ctx context.Context, t *testing.T, c *clientv3.Client, prefix, letter string, n, size int) int64 {
	t.Helper()
	value, batch, rev := strings.Repeat(letter, size), min(100, 1<<20/size), int64(0)
	for i := 0; i < n; i += batch {
		var ops []clientv3.Op
		for j := i; j < min(n, i+batch); j++ {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%04d", prefix, j), value))
		}
		resp, err := c.Txn(ctx).Then(ops...).Commit()
		must(t, err)
		rev = resp.Header.GetRevision()
	}
	return rev
}

// TestStreamedRanges reads by GetStream. Its clients are of different members.
func TestStreamedRanges(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		a, b := memberClients(t, startCluster(t, p))
		t.Run("are those of Get", func(t *testing.T) { streamsAreThoseOfGet(t, a) })
		t.Run("are of one revision", func(t *testing.T) { streamsAreOfOneRevision(t, a, b) })
		t.Run("are refused", func(t *testing.T) { streamsAreRefused(t, b) })
	})
}

// A range in a stream is that of Get, header and all, in whatever chunks it comes.
func streamsAreThoseOfGet(t *testing.T, client *clientv3.Client) {
	ctx := deadline(t)
	before := fill(ctx, t, client, "k/", "a", 300, 3<<10)
	fill(ctx, t, client, "k/0", "b", 30, 10)
	for _, ask := range []struct {
		name, key string
		opts      []clientv3.OpOption
	}{
		{"one key", "k/0000", nil},
		{"a missing key", "nothing", nil},
		{"a prefix", "k/", []clientv3.OpOption{clientv3.WithPrefix()}},
		{"an empty prefix", "nothing/", []clientv3.OpOption{clientv3.WithPrefix()}},
		{"from a key", "k/0250", []clientv3.OpOption{clientv3.WithFromKey()}},
		{"all keys", "", []clientv3.OpOption{clientv3.WithPrefix()}},
		{"a limit below what there is", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(299)}},
		{"a limit of exactly what there is", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(330)}},
		{"a limit of one", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithLimit(1)}},
		{"an earlier revision", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(before)}},
		{"keys", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly()}},
		{"a count", "k/", []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCountOnly()}},
		{"what this member has", "k/0000", []clientv3.OpOption{clientv3.WithSerializable()}},
	} {
		want, err := client.Get(ctx, ask.key, ask.opts...)
		must(t, err)
		stream, err := client.GetStream(ctx, ask.key, ask.opts...)
		must(t, err)
		got, err := clientv3.GetStreamToGetResponse(stream)
		if err != nil || rangeText(got) != rangeText(want) {
			t.Errorf("GetStream() of %s = %.400s, %v, want %.400s", ask.name, rangeText(got), err, rangeText(want))
		}
	}
}

// rangeText shows a response in full.
func rangeText(r *clientv3.GetResponse) string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprint(r.Header, r.More, r.Count, len(r.Kvs), r.Kvs)
}

// A stream goes on as of the revision at which it began, whatever is written
// behind its first chunk, and only its last chunk has a header.
func streamsAreOfOneRevision(t *testing.T, client, other *clientv3.Client) {
	ctx := deadline(t)
	const keys = 64
	began := fill(ctx, t, client, "one/", "a", keys, 100<<10)
	stream, err := client.GetStream(ctx, "one/", clientv3.WithPrefix())
	must(t, err)
	first := <-stream
	must(t, first.Err())
	_, err = other.Put(ctx, "one/0000-new", "b")
	must(t, err)
	_, err = other.Delete(ctx, "one/", clientv3.WithRange("one/0060"))
	must(t, err)
	last, found, chunks := first, len(first.Kvs), 1
	for chunk := range stream {
		must(t, chunk.Err())
		if last.Header != nil {
			t.Errorf("chunk %d, not the last one, has the header %v", chunks, last.Header)
		}
		found += len(chunk.Kvs)
		for _, kv := range chunk.Kvs {
			if kv.GetModRevision() > began {
				t.Errorf("%s is of revision %d, want no more than %d", kv.GetKey(), kv.GetModRevision(), began)
			}
		}
		last = chunk
		chunks++
	}
	if found != keys || chunks < 2 || last.Count != keys || last.Header.GetRevision() != began {
		t.Errorf("%d keys in %d chunks, with count %d at revision %d, want %d in several at %d", found, chunks, last.Count, last.Header.GetRevision(), keys, began)
	}
}

// What cannot be streamed is refused as etcd does.
func streamsAreRefused(t *testing.T, client *clientv3.Client) {
	ctx := deadline(t)
	rev := fill(ctx, t, client, "refused/", "a", 10, 10)
	fill(ctx, t, client, "refused/", "b", 10, 10)
	_, err := client.Compact(ctx, rev+1)
	must(t, err)
	for _, ask := range []struct {
		name, key string
		opt       clientv3.OpOption
		want      error
	}{
		{"a compacted revision", "refused/", clientv3.WithRev(rev), rpctypes.ErrCompacted},
		{"a future revision", "refused/", clientv3.WithRev(rev + 2), rpctypes.ErrFutureRev},
		{"no key", "", clientv3.WithLimit(1), rpctypes.ErrEmptyKey},
		{"values in order", "refused/", clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend), status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")},
		{"keys in reverse", "refused/", clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")},
		{"new keys", "refused/", clientv3.WithMinModRev(2), status.Error(codes.Unimplemented, "RangeStream does not support revision filters")},
	} {
		stream, err := client.GetStream(ctx, ask.key, ask.opt)
		must(t, err)
		resp, err := clientv3.GetStreamToGetResponse(stream)
		if err = rpctypes.Error(err); !errors.Is(err, ask.want) && (err == nil || err.Error() != ask.want.Error()) {
			t.Errorf("GetStream() of %s = %v, %v, want %v", ask.name, resp, err, ask.want)
		}
	}
	if resp, err := client.Get(ctx, "refused/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || resp.Count != 10 {
		t.Errorf("Get() afterwards = %v, %v, want 10 keys", resp, err)
	}
}
