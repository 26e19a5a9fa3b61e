package restore

import (
	"errors"
	"testing"

	"github.com/leaderlease/go/kvnode/store"
)

func TestInspectSnapshot(t *testing.T) {
	var data []byte
	var want store.Hash
	withMember(t, func(t *testing.T, m *member) {
		m.put("key")
		data, want = readFile(t, m.saved()), hashOf(t, m.Store())
	})
	file := writeFile(t, data)
	for name, path := range map[string]string{"snapshot": file, "database": writeFile(t, data[:len(data)-32])} {
		got, err := InspectSnapshot(path)
		if err != nil || got.Hash != want || got.Keys != 1 || got.Revision != 2 || got.Size != int64(len(readFile(t, path))) {
			t.Errorf("InspectSnapshot(%s) = %+v, %v, want one key and %+v", name, got, err, want)
		}
	}
	data[100] ^= 1
	if _, err := InspectSnapshot(writeFile(t, data)); !errors.Is(err, ErrSnapshotDamaged) {
		t.Errorf("InspectSnapshot(damaged) = %v, want ErrSnapshotDamaged", err)
	}
	if _, err := InspectSnapshot(writeSnapshotFile(t, otherDatabase(t))); !errors.Is(err, ErrSnapshotForeign) || errors.Is(err, store.ErrDamaged) {
		t.Errorf("InspectSnapshot(another program's) = %v, want ErrSnapshotForeign", err)
	}
}
