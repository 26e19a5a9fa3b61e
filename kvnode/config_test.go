package kvnode

import (
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
)

func TestValidateReportsEverything(t *testing.T) {
	c := Config{
		Name: "n3", TickInterval: 100 * time.Millisecond, ElectionTimeout: 400 * time.Millisecond,
		MaxRequestBytes: 1 << 30, ReadMode: 9,
		Cluster: []Member{
			{Name: "n1", PeerURLs: []string{"http://a:1"}},
			{Name: "n1", PeerURLs: []string{"ftp://a:1"}},
			{Name: "", PeerURLs: []string{"http://a"}},
			{Name: "n2", PeerURLs: []string{"http://a:1"}},
			{Name: "n4", PeerURLs: []string{"http://a:1/x"}},
		},
	}.WithDefaults()
	err := c.Validate()
	if err == nil {
		t.Fatal("Validate() = nil, want errors")
	}
	for _, want := range []string{
		"no data directory", "no listener", "election timeout 400ms", "max request bytes 1073741824",
		"read mode 9", `"n1" is twice`, `scheme "ftp"`, "has no name", "must be scheme://host:port", `have the same peer URLs`, "must not have more than scheme, host and port",
		`member "n3" is not in the initial cluster`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() does not say %q:\n%v", want, err)
		}
	}
}

func TestReadModes(t *testing.T) {
	for m := ReadAuto; m <= ReadSerializable; m++ {
		if got, err := ParseReadMode(m.String()); got != m || err != nil {
			t.Errorf("ParseReadMode(%q) = %v, %v, want %v", m.String(), got, err, m)
		}
	}
	if _, err := ParseReadMode("fast"); err == nil || !strings.Contains(err.Error(), `"fast"`) {
		t.Errorf("ParseReadMode(fast) = %v, want an error that names it", err)
	}
}

func TestDefaultsOfWhatStaysInTheLog(t *testing.T) {
	for _, test := range []struct{ give, want Config }{
		{Config{}, Config{CatchUpEntries: 5000, CatchUpBytes: 16 << 20}},
		{Config{CatchUpEntries: 5000}, Config{CatchUpEntries: 5000, CatchUpBytes: 16 << 20}}, // as the flag's default is given
		{Config{CatchUpEntries: 100}, Config{CatchUpEntries: 100}},
		{Config{CatchUpEntries: 100, CatchUpBytes: 1 << 20}, Config{CatchUpEntries: 100, CatchUpBytes: 1 << 20}},
	} {
		got := test.give.WithDefaults()
		if got.CatchUpEntries != test.want.CatchUpEntries || got.CatchUpBytes != test.want.CatchUpBytes {
			t.Errorf("with %d entries and %d bytes, %d and %d stay, want %d and %d", test.give.CatchUpEntries, test.give.CatchUpBytes,
				got.CatchUpEntries, got.CatchUpBytes, test.want.CatchUpEntries, test.want.CatchUpBytes)
		}
	}
}

// awake is a clock that counts the time for which the machine is suspended.
type awake struct{}

func (awake) Now() leaderlease.Instant { return clock.Runtime().Now() }
func (awake) Info() clock.Info         { return clock.Info{Name: "awake", CountsSuspend: true, Cost: 1} }

// The defaults of the lease fit the other settings: they delay no election, exceed no promise of former
// versions, and leave two heartbeats before the margin.
func TestTheDefaultsOfTheLease(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name             string
		cfg              Config
		duration, margin time.Duration
	}{
		{"by default", Config{Clock: awake{}}, 250 * ms, 100 * ms},
		{"a clock that does not count suspended time", Config{Clock: clock.Runtime()}, 900 * ms, 180 * ms},
		{"the same, and an impatient cluster", Config{Clock: clock.Runtime(), TickInterval: 10 * ms, ElectionTimeout: 100 * ms}, 80 * ms, 32 * ms},
		{"the same, and the shortest of former versions", Config{Clock: clock.Runtime(), ElectionTimeout: 500 * ms}, 400 * ms, 100 * ms},
		{"the same, with heartbeats of former versions", Config{Clock: clock.Runtime(), TickInterval: 100 * ms}, 900 * ms, 180 * ms},
		{"heartbeats of former versions", Config{Clock: awake{}, TickInterval: 100 * ms}, 500 * ms, 100 * ms},
		{"rare heartbeats", Config{Clock: awake{}, TickInterval: 500 * ms, ElectionTimeout: 5 * time.Second}, 2500 * ms, 500 * ms},
		{"a patient cluster", Config{Clock: awake{}, ElectionTimeout: 10 * time.Second}, 250 * ms, 100 * ms},
		{"the fewest heartbeats", Config{Clock: awake{}, TickInterval: 200 * ms}, 800 * ms, 160 * ms},
		{"an impatient cluster", Config{Clock: awake{}, TickInterval: 10 * ms, ElectionTimeout: 100 * ms}, 80 * ms, 32 * ms},
		{"heartbeats that do not go into the election timeout", Config{Clock: awake{}, TickInterval: 45 * ms, ElectionTimeout: 300 * ms}, 225 * ms, 90 * ms},
		{"the same of a clock that does not count suspended time", Config{Clock: clock.Runtime(), TickInterval: 80 * ms}, 880 * ms, 176 * ms},
		{"a margin that leaves two heartbeats", Config{Clock: awake{}, ElectionTimeout: 300 * ms, MaxClockSkew: 150 * ms}, 250 * ms, 150 * ms},
		{"a longer promise", Config{Clock: awake{}, LeaseDuration: 900 * ms}, 900 * ms, 180 * ms},
		{"a short promise of former versions", Config{Clock: awake{}, LeaseDuration: 250 * ms, TickInterval: 100 * ms}, 250 * ms, 50 * ms},
		{"the shortest promise of former versions", Config{Clock: awake{}, LeaseDuration: 125 * ms}, 125 * ms, 25 * ms},
		{"a short promise", Config{Clock: awake{}, LeaseDuration: 160 * ms}, 160 * ms, 60 * ms},
		{"a margin", Config{Clock: awake{}, MaxClockSkew: 50 * ms}, 250 * ms, 50 * ms},
		{"the margin of former versions", Config{Clock: awake{}, MaxClockSkew: 180 * ms}, 450 * ms, 180 * ms},
		{"a wide margin", Config{Clock: awake{}, MaxClockSkew: 700 * ms}, 900 * ms, 700 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.cfg.WithDefaults()
			if d, m := c.Lease(); d != tt.duration || m != tt.margin {
				t.Errorf("Lease() = %v, %v, want %v, %v", d, m, tt.duration, tt.margin)
			}
			if d, m := c.Lease(); d-m < 2*c.TickInterval {
				t.Errorf("Lease() = %v, %v, of which two heartbeats of %v are to be left", d, m, c.TickInterval)
			}
			if d, _ := c.Lease(); d > c.ElectionTimeout.Truncate(c.TickInterval)-c.TickInterval {
				t.Errorf("Lease() = %v, which is more than the member promises others", d)
			}
		})
	}
}
