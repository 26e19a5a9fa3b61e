package size

import (
	"maps"
	"slices"
	"testing"
)

// Each key gets as many puts as it is to have versions, and none of them twice in a
// transaction, which servers refuse.
func TestEachKeyIsPutAsOftenAsAsked(t *testing.T) {
	for _, f := range []Fill{{Keys: 250, Versions: 3, PerTxn: 100}, {Keys: 7, Versions: 1, PerTxn: 1}, {Keys: 3, Versions: 2, PerTxn: 100}} {
		all := make(map[string]int)
		for n := range f.txns() * f.Versions {
			one := make(map[string]bool)
			for _, op := range f.puts(n, "v") {
				all[string(op.KeyBytes())]++
				one[string(op.KeyBytes())] = true
			}
			if got := len(f.puts(n, "v")); len(one) != got || got == 0 || got > f.PerTxn {
				t.Errorf("%+v: transaction %d has %d puts of %d keys", f, n, got, len(one))
			}
		}
		if counts := slices.Compact(slices.Collect(maps.Values(all))); len(all) != f.Keys || !slices.Equal(counts, []int{f.Versions}) {
			t.Errorf("%+v: %d keys with %v versions", f, len(all), counts)
		}
	}
}
