package leasetest

import (
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/leaderlease/go/leaderlease"
)

func TestClusterServesUnderLease(t *testing.T) {
	for name, opts := range map[string]NodeOptions{
		"sync":  {},
		"async": {Async: true, DiskDelay: func() time.Duration { return 2 * time.Millisecond }},
	} {
		t.Run(name, func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, 1)
			c := New(Options{Node: func(uint64) NodeOptions { return opts }})
			if !c.Elect(1) {
				t.Fatalf("Elect(1) = false; leader %v", c.Leader())
			}
			var written uint64
			c.Node(1).Write(7, 1, func(v uint64) { written = v })
			c.Run(100 * time.Millisecond)
			if written == 0 {
				t.Fatal("Write() was never applied")
			}
			for _, n := range c.Nodes() {
				want := leaderlease.PathForwarded
				if n.ID == 1 {
					want = leaderlease.PathLease
				}
				var served bool
				n.Read(7, func(v uint64, path leaderlease.Path, err error) {
					served = true
					if v != written || path != want || err != nil {
						t.Errorf("node %d: Read() = %d, %v, %v, want %d, %v, nil", n.ID, v, path, err, written, want)
					}
				})
				c.Run(100 * time.Millisecond)
				if !served {
					t.Errorf("node %d: Read() was never answered", n.ID)
				}
			}
		})
	}
}
