package settings

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The check of outputs leaves no trace: existing files keep their contents, and files that it
// created are removed.
func TestOutputsAreChecked(t *testing.T) {
	dir := t.TempDir()
	old, missing, pipe := filepath.Join(dir, "old"), filepath.Join(dir, "new"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(old, []byte("yesterday\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link, dangling := filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	if err := errors.Join(os.Symlink("later", link), os.Symlink("a/b", dangling)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, output, want string }{
		{"a link to a file to be made", link, ""},
		{"a link to where nothing can be made", dangling, "--log-outputs: open " + dangling},
		{"a file", old, ""},
		{"a file to be made", missing, ""},
		{"a pipe without a reader", pipe, ""},
		{"streams", "stderr,stdout,default", ""},
		{"no such directory", filepath.Join(dir, "a", "b"), "--log-outputs: open " + filepath.Join(dir, "a", "b")},
		{"a directory", dir, "--log-outputs: open " + dir},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := Log{Outputs: Split(test.output)}
			err := l.check()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("check() = %v, want %q", err, test.want)
			}
		})
	}
	if data, err := os.ReadFile(old); err != nil || string(data) != "yesterday\n" {
		t.Errorf("the file holds %q, %v after the check, want it untouched", data, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 {
		t.Errorf("the directory holds %v, %v after the check, want what it did", left, err)
	}
}
