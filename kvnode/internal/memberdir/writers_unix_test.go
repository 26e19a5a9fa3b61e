//go:build unix

package memberdir

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

// owned is a file with an owner and a mode.
type owned struct {
	fs.FileInfo

	mode fs.FileMode
	uid  uint32
}

func (o owned) Mode() fs.FileMode { return o.mode }
func (o owned) Sys() any          { return &syscall.Stat_t{Uid: o.uid} }

func TestOtherWriters(t *testing.T) {
	self := uint32(os.Geteuid())
	for _, test := range []struct {
		name string
		file owned
		want string
	}{
		{"private", owned{mode: 0o700, uid: self}, ""},
		{"readable", owned{mode: 0o755, uid: self}, ""},
		{"writable for the group", owned{mode: 0o770, uid: self}, "its group"},
		{"writable for all", owned{mode: 0o777, uid: self}, "all users"},
		{"writable for all, with the sticky bit", owned{mode: fs.ModeSticky | 0o777, uid: self}, "all users"},
		{"of another user", owned{mode: 0o700, uid: self + 4711}, "its owner"},
		{"of root", owned{mode: 0o755}, ""},
		{"a link", owned{mode: fs.ModeSymlink | 0o777, uid: self}, ""},
	} {
		got := otherWriters(test.file)
		if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) {
			t.Errorf("otherWriters(%s) = %q, want %q", test.name, got, test.want)
		}
	}
}
