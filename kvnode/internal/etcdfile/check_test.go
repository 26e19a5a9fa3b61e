package etcdfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Check names each kind of data that kvnode cannot keep or does not know.
func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c contents)
		want   string // part of the error, empty for none
	}{
		{"nothing", func(contents) {}, ""},
		{"the oldest", func(c contents) { delete(c["meta"], "storageVersion"); delete(c, "authUsers"); delete(c, "alarm") }, ""},
		{"the newest", func(c contents) { c["meta"]["storageVersion"] = "3.7.0" }, ""},
		{"authentication that was turned off", func(c contents) { c["auth"]["authEnabled"], c["auth"]["authRevision"] = "\x00", number(3) }, ""},
		{"a newer one", func(c contents) { c["meta"]["storageVersion"] = "3.8.0" }, `storage version "3.8.0"`},
		{"etcd 4", func(c contents) { c["meta"]["storageVersion"] = "4.0.0" }, `storage version "4.0.0"`},
		{"no version", func(c contents) { c["meta"]["storageVersion"] = "new" }, `storage version "new"`},
		{"another bucket", func(c contents) { c["vectors"] = nil }, `a bucket "vectors"`},
		{"something in meta", func(c contents) { c["meta"]["encryption"] = "aes" }, `its meta says "encryption"`},
		{"authentication", func(c contents) { c["auth"]["authEnabled"] = "\x01" }, "authentication is on"},
		{"a user", func(c contents) { c["authUsers"]["root"] = "x" }, `authentication is off, with users ["root"]`},
		{"a role", func(c contents) { c["authRoles"]["reader"] = "x" }, `roles ["reader"]`},
		{"many users", func(c contents) {
			for i := range 10000 {
				c["authUsers"][fmt.Sprintf("u%04d", i)] = "x"
			}
		}, `"u0007"] and 9992 more`},
		{"a long name", func(c contents) { c["authUsers"][strings.Repeat("u", 10000)] = "x" }, `["` + strings.Repeat("u", nameBytes) + `"]`},
		{"no space", func(c contents) {
			c["alarm"][message(&pb.AlarmMember{MemberID: 0x8e9e, Alarm: pb.AlarmType_NOSPACE})] = ""
		}, "NOSPACE at member 8e9e"},
		{"corruption", func(c contents) { c["alarm"][message(&pb.AlarmMember{MemberID: 1, Alarm: pb.AlarmType_CORRUPT})] = "" }, "CORRUPT at member 1"},
		{"an unreadable alarm", func(c contents) { c["alarm"]["\xff"] = "" }, "an alarm is unreadable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := fresh()
			tc.change(c)
			err := c.open(t).Check()
			if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("Check() = %v, want %q", err, tc.want)
			}
		})
	}
}

// An unknown field may change the meaning of the rest.
func TestAnUnknownFieldIsRefused(t *testing.T) {
	c := fresh()
	c["key"][at(3, 0)] = record("k", "v", 2, 3, 2, 0) + "\x38\x01"
	if _, err := c.open(t).Summary(); !errors.Is(err, ErrRefused) {
		t.Errorf("Summary() = %v, want ErrRefused", err)
	}
}

// The storage version is printed, so it must look like a version.
func TestAVersionThatIsNone(t *testing.T) {
	for _, version := range []string{"3.6.0\x1b]0;title\x07", "3.6.0\n", "3.6 ", strings.Repeat("3", 65)} {
		c := fresh()
		c["meta"]["storageVersion"] = version
		f, err := Open(c.write(t))
		if err == nil {
			_ = f.Close()
		}
		if !errors.Is(err, store.ErrDamaged) || strings.ContainsAny(err.Error(), "\x1b\x07\n") {
			t.Errorf("Open() with version %q = %v, want %v without control characters", version, err, store.ErrDamaged)
		}
	}
}

// FuzzARecordIsUnderstoodOrRefused: a record is a version that a store can have, or an error that
// wraps ErrDamaged or ErrRefused. A parsed revision encodes to the same bytes.
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

// FuzzAFileIsReadOrRefused: a damaged file is read or refused, and never ends the process.
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
		_, _ = file.Summary() // it must return
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
}
