package etcdfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// What kvnode cannot keep, or does not know, is refused by its name.
func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c contents)
		want   string // part of the error, empty if there is none
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

// A field of a version that this package does not know may say what the rest means.
func TestAnUnknownFieldIsRefused(t *testing.T) {
	c := fresh()
	c["key"][at(3, 0)] = record("k", "v", 2, 3, 2, 0) + "\x38\x01"
	if _, err := c.open(t).Summary(); !errors.Is(err, ErrRefused) {
		t.Errorf("Summary() = %v, want ErrRefused", err)
	}
}

// What a file says of its version is printed, so it must be a version.
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
