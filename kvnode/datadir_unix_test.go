//go:build unix

package kvnode

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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

// A member whose directory others may write to says so at the start, and starts.
func TestADirectoryOfOthersIsWarnedOf(t *testing.T) {
	warned := func(change func(dir string) error) string {
		var said bytes.Buffer
		cfg := aloneConfig(t)
		cfg.SegmentSize = 1 << 20
		cfg.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
		for range 2 { // the first makes the directory
			said.Reset()
			n := newNode(cfg)
			_, err := n.openFiles()
			if err := errors.Join(err, n.closeFiles(), change(cfg.DataDir)); err != nil {
				t.Fatal(err)
			}
		}
		return said.String()
	}
	if got := warned(func(string) error { return nil }); got != "" {
		t.Errorf("the start of a member with a directory of its own says %s, want nothing", got)
	}
	for path, who := range map[string]string{"": "its group", identityFile: "its group", walDir: "everybody"} {
		mode := map[string]fs.FileMode{"its group": 0o770, "everybody": 0o707}[who]
		got := warned(func(dir string) error { return os.Chmod(filepath.Join(dir, path), mode) })
		if !strings.Contains(got, "others may write") || !strings.Contains(got, who) || !strings.Contains(got, "chmod") {
			t.Errorf("the start with %q for %s says %q, want a warning that says who and what to do", path, who, got)
		}
	}
}
