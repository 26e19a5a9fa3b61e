package kvnode

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A snapshot that was cut off, wherever, is said to be that, and not another
// program's; one that is whole, with or without its checksum, is taken.
func TestASnapshotThatIsCutOff(t *testing.T) {
	n := startAlone(t)
	data := readFile(t, saveSnapshot(t, n))
	members := []Member{{Name: "a", PeerURLs: []string{"http://a:2380"}}}
	for _, size := range []int{100, 4096, 8191, 16 << 10, len(data) / 2, len(data) - 4096, len(data) - 33, len(data) - 31, len(data) - 1} {
		file := writeFile(t, data[:size])
		_, err := InspectSnapshot(file)
		want := fmt.Sprintf("is cut off: it has %d bytes, and lacks %d", size, len(data)-size)
		if !errors.Is(err, ErrSnapshotDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("InspectSnapshot(%d of %d bytes) = %v, want that it %s", size, len(data), err, want)
		}
		for _, skip := range []bool{false, true} {
			_, err = RestoreSnapshot(RestoreConfig{File: file, Name: "a", DataDir: filepath.Join(t.TempDir(), "a"), Cluster: members, SkipHashCheck: skip})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("RestoreSnapshot(%d of %d bytes) = %v, want that it %s", size, len(data), err, want)
			}
		}
	}
	for _, size := range []int{len(data), len(data) - 32} {
		if _, err := InspectSnapshot(writeFile(t, data[:size])); err != nil {
			t.Errorf("InspectSnapshot(%d of %d bytes) = %v, want nil", size, len(data), err)
		}
	}
}
