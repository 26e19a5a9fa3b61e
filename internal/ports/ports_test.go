package ports

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An address that was given out is not given out again soon, though it is free.
func TestNoAddressComesTwice(t *testing.T) {
	seen := make(map[string]bool)
	for range block / 2 {
		addr, err := Free(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if seen[addr] {
			t.Errorf("%s is given out twice", addr)
		}
		seen[addr] = true
	}
}

// Two processes whose IDs ask for the same block have one each while both run.
func TestProcessesHaveBlocksOfTheirOwn(t *testing.T) {
	one, first := claim(7)
	other, second := claim(7 + blocks)
	if first == nil || second == nil {
		t.Fatal("no block is free")
	}
	if one == other {
		t.Errorf("both have the block of port %d", one)
	}
	_, _ = first.Close(), second.Close()
}
