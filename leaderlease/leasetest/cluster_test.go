package leasetest

import (
	"testing"
	"testing/cryptotest"
	"time"

	"go.uber.org/goleak"

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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestScripts(t *testing.T) { RunScripts(t, "testdata/script") }

// TestFoundScripts plays the scripts that searches have found with planted bugs, each of which
// is named above its script. Without the bugs they must pass.
func TestFoundScripts(t *testing.T) { RunScripts(t, "testdata/found") }

// TestScript plays one script: go test -run TestScript -args -script=FILE [-rewrite].
func TestScript(t *testing.T) {
	if *scriptFile != "" {
		RunScript(t, *scriptFile)
	}
}
