package testcluster

import (
	"testing"
)

// An address that was given out is not given out again soon, though it is free.
func TestNoAddressComesTwice(t *testing.T) {
	seen := make(map[string]bool)
	for range blockPorts / 2 {
		addr, err := FreeAddr(t.Context())
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
	one, first := claimBlock(7)
	other, second := claimBlock(7 + portBlocks)
	if first == nil || second == nil {
		t.Fatal("no block is free")
	}
	if one == other {
		t.Errorf("both have the block of port %d", one)
	}
	_, _ = first.Close(), second.Close()
}
