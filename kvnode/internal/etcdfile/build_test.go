package etcdfile

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// contents are the buckets of a database.
type contents map[string]map[string]string

// fresh returns the buckets of an etcd without writes.
func fresh() contents {
	return contents{
		"key": {}, "lease": {}, "alarm": {}, "cluster": {"clusterVersion": "3.6.0"}, "members": {"8e9e": "{}"}, "members_removed": {},
		"auth": {}, "authUsers": {}, "authRoles": {},
		"meta": {"consistent_index": number(7), "term": number(3), "confState": "{}", "storageVersion": "3.6.0"},
	}
}

func number(n uint64) string { return string(order.AppendUint64(nil, n)) }

func at(main int64, sub uint32) string { return string(revision{main: main, sub: sub}.key()) }

func tombstone(main int64, sub uint32) string {
	return string(revision{main: main, sub: sub, tombstone: true}.key())
}

// record returns a live version.
func record(key, value string, create, mod, version, ttl int64) string {
	return message(&mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: create, ModRevision: mod, Version: version, Lease: ttl})
}

func message(m proto.Message) string {
	data, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// granted returns a TTL lease.
func granted(id, ttl, remaining int64) string {
	var b []byte
	for field, n := range []int64{ttlID: id, ttlGranted: ttl, ttlRemaining: remaining} {
		if n != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(field), protowire.VarintType), uint64(n))
		}
	}
	return string(b)
}

// write writes a database.
func (c contents) write(tb testing.TB) (path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		tb.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range slices.Sorted(maps.Keys(c)) {
			b, err := tx.CreateBucket([]byte(name))
			if err != nil {
				return err
			}
			for key, value := range c[name] {
				if err := b.Put([]byte(key), []byte(value)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		tb.Fatal(err)
	}
	return path
}

func (c contents) open(tb testing.TB) *File {
	tb.Helper()
	f, err := Open(c.write(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := f.Close(); err != nil {
			tb.Error(err)
		}
	})
	return f
}

func readFile(tb testing.TB, path string) []byte {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}
