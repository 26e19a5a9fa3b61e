package sim

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leaderlease/go/leaderlease/leasepage"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

var record = flag.Bool("record", false, "record docs/incidents anew")

const incidents = "../../../docs/incidents"

// The rules allow the incidents in the documents, both as recorded and as the simulator now
// plays their schedules.
func TestIncidentsAreAllowed(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(incidents, "*.schedule"))
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %q, %v, want five incidents", files, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".schedule"), func(t *testing.T) {
			recorded := strings.TrimSuffix(path, ".schedule") + ".trace"
			now := simulated(t, path)
			if *record {
				var b bytes.Buffer
				if err := errors.Join(leasetrace.Write(&b, now), os.WriteFile(recorded, b.Bytes(), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			then, err := leasetrace.ReadFiles(recorded)
			if err != nil {
				t.Fatal(err)
			}
			for what, all := range map[string][]leasetrace.Process{"recorded": then, "now": now} {
				p := leasepage.Draw(all, nil)
				if p.Refused != "" || !p.Proved || !slices.ContainsFunc(p.Lanes, func(l *leasepage.Lane) bool { return len(l.Leases) > 0 }) {
					t.Errorf("%s: the picture says %q %q, want leases, and that all is allowed", what, p.Refused, p.Verdict)
				}
			}
		})
	}
}

// simulated returns the traces of a schedule, which breaks nothing.
func simulated(t *testing.T, path string) []leasetrace.Process {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSchedule(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r := Run(t, Config{Seed: s.Seed, Schedule: s, Trace: true})
	r.Require(t)
	return r.Traces
}
