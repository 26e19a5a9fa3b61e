//go:build unix

package memberdir

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

// owned is a file of somebody.
type owned struct {
	fs.FileInfo

	mode fs.FileMode
	uid  uint32
}

func (o owned) Mode() fs.FileMode { return o.mode }
func (o owned) Sys() any          { return &syscall.Stat_t{Uid: o.uid} }

func TestWhoMayWrite(t *testing.T) {
	me := uint32(os.Geteuid())
	for _, test := range []struct {
		what string
		file owned
		want string
	}{
		{"the member's alone", owned{mode: 0o700, uid: me}, ""},
		{"one that others may read", owned{mode: 0o755, uid: me}, ""},
		{"one for its group", owned{mode: 0o770, uid: me}, "its group"},
		{"one for everybody", owned{mode: 0o777, uid: me}, "everybody"},
		{"one for everybody, who may not delete", owned{mode: fs.ModeSticky | 0o777, uid: me}, "everybody"},
		{"somebody else's", owned{mode: 0o700, uid: me + 4711}, "its owner"},
		{"root's", owned{mode: 0o755}, ""},
		{"a link", owned{mode: fs.ModeSymlink | 0o777, uid: me}, ""},
	} {
		got := writers(test.file)
		if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) {
			t.Errorf("writers(%s) = %q, want %q", test.what, got, test.want)
		}
	}
}
