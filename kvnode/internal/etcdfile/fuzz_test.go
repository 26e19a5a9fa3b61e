package etcdfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// FuzzARecordIsUnderstoodOrRefused: whatever bytes are in a record, it is a version that a
// store can have, or an error that says whose fault it is; and a revision that was read is
// written alike.
func FuzzARecordIsUnderstoodOrRefused(f *testing.F) {
	f.Add([]byte(at(3, 0)), []byte(record("k", "v", 2, 3, 2, 7)))
	f.Add([]byte(tombstone(3, 1)), []byte(message(&mvccpb.KeyValue{Key: []byte("k")})))
	f.Add([]byte(at(3, 0)), []byte(nil))
	f.Add([]byte("k"), []byte("\xff"))
	f.Add([]byte(number(7)), []byte(granted(7, 60, 5)))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if l, err := decodeTTL(key, value); err == nil && (l.ID == 0 || l.TTL < 1 || l.TTL > store.MaxTTL) {
			t.Errorf("decodeTTL(%x, %x) = %+v", key, value, l)
		}
		r, err := parseRevision(key)
		if err != nil {
			if !errors.Is(err, store.ErrDamaged) {
				t.Errorf("parseRevision(%x) = %v, want ErrDamaged", key, err)
			}
			return
		}
		if string(r.key()) != string(key) {
			t.Errorf("parseRevision(%x) = %+v, which is %x", key, r, r.key())
		}
		wantDecoded(t, r, value)
	})
}

func wantDecoded(t *testing.T, r revision, value []byte) {
	t.Helper()
	kv, err := decode(r, value)
	switch {
	case err != nil:
		if !errors.Is(err, store.ErrDamaged) && !errors.Is(err, ErrRefused) {
			t.Errorf("decode(%+v, %x) = %v, want ErrDamaged or ErrRefused", r, value, err)
		}
	case kv == nil:
		if len(value) > 0 {
			t.Errorf("decode(%+v, %x) = nothing", r, value)
		}
	case len(kv.GetKey()) == 0 || kv.GetModRevision() != r.main || r.tombstone != (kv.GetVersion() == 0):
		t.Errorf("decode(%+v, %x) = %v", r, value, kv)
	case r.tombstone && proto.Size(kv) != proto.Size(&mvccpb.KeyValue{Key: kv.GetKey(), ModRevision: r.main}):
		t.Errorf("decode(%+v, %x) = %v, want a tombstone without more", r, value, kv)
	}
}

// FuzzAFileIsReadOrRefused: whatever has become of a file, it is read to its end, or
// refused, and never ends the process.
func FuzzAFileIsReadOrRefused(f *testing.F) {
	files := saved(f)
	whole := make([][]byte, len(files))
	for i, path := range files {
		whole[i] = readFile(f, path)
		f.Add(uint8(i), uint32(4096), []byte("\xff"), uint32(0))
		f.Add(uint8(i), uint32(8192+16), make([]byte, 64), uint32(100))
	}
	f.Fuzz(func(t *testing.T, which uint8, from uint32, over []byte, cut uint32) {
		data := append([]byte(nil), whole[int(which)%len(whole)]...)
		copy(data[int(from)%len(data):], over)
		data = data[:len(data)-int(cut)%len(data)]
		path := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := Open(path)
		if err != nil {
			return
		}
		_, _ = file.Summary() // what matters is that it comes back
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
}
