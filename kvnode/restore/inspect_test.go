package restore

import (
	"errors"
	"testing"

	"github.com/leaderlease/go/kvnode/internal/store"
)

func TestInspect(t *testing.T) {
	var data []byte
	var want store.Hash
	withMember(t, func(t *testing.T, m *member) {
		m.put("key")
		data, want = readFile(t, m.saved()), hashOf(t, m.Store())
	})
	file := writeFile(t, data)
	for name, path := range map[string]string{"snapshot": file, "database": writeFile(t, data[:len(data)-32])} {
		got, err := Inspect(path)
		if err != nil || got.Hash != want || got.Keys != 1 || got.Revision != 2 || got.Size != int64(len(readFile(t, path))) {
			t.Errorf("Inspect(%s) = %+v, %v, want one key and %+v", name, got, err, want)
		}
	}
	data[100] ^= 1
	if _, err := Inspect(writeFile(t, data)); !errors.Is(err, ErrDamaged) {
		t.Errorf("Inspect(damaged) = %v, want ErrDamaged", err)
	}
	if _, err := Inspect(writeSnapshotFile(t, otherDatabase(t))); !errors.Is(err, ErrForeign) || errors.Is(err, store.ErrDamaged) {
		t.Errorf("Inspect(another program's) = %v, want ErrForeign", err)
	}
}
