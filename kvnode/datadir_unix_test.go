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
	"testing"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
)

// A member starts although other users may write to its directory, and logs a warning.
func TestADirectoryOfOthersIsWarnedOf(t *testing.T) {
	warned := func(change func(dir string) error) string {
		var said bytes.Buffer
		cfg := aloneConfig(t)
		cfg.SegmentSize = 1 << 20
		cfg.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
		for range 2 { // the first makes the directory
			said.Reset()
			n := newNode(cfg)
			err := openFiles(n)
			if err := errors.Join(err, closeFiles(n), change(cfg.DataDir)); err != nil {
				t.Fatal(err)
			}
		}
		return said.String()
	}
	if got := warned(func(string) error { return nil }); got != "" {
		t.Errorf("the start of a member with a directory of its own says %s, want nothing", got)
	}
	for path, who := range map[string]string{"": "its group", memberdir.IdentityFile: "its group", memberdir.LogFolder: "everybody"} {
		mode := map[string]fs.FileMode{"its group": 0o770, "everybody": 0o707}[who]
		got := warned(func(dir string) error { return os.Chmod(filepath.Join(dir, path), mode) })
		if !strings.Contains(got, "other users may write") || !strings.Contains(got, who) || !strings.Contains(got, "chmod") {
			t.Errorf("the start with %q for %s says %q, want a warning with the users and the advice", path, who, got)
		}
	}
}
