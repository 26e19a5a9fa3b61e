package benbjohnson

import (
	"math"
	"testing"
	"time"

	bbj "github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/core"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ clock.Clock     = (*Clock)(nil)
	_ clock.Described = (*Clock)(nil)
)

func TestFollowsAMock(t *testing.T) {
	mock := bbj.NewMock()
	c := From(mock)
	if got := c.Now(); got != firstReading {
		t.Errorf("Now() = %d, want %d", got, firstReading)
	}
	mock.Add(1500 * time.Millisecond)
	if got, want := c.Now(), firstReading.Add(1500*time.Millisecond); got != want {
		t.Errorf("Now() after 1.5s = %d, want %d", got, want)
	}
}

func TestEdgesOfAMock(t *testing.T) {
	epoch := time.Unix(0, 0)
	first := time.Duration(firstReading)
	cases := []struct {
		name string
		set  time.Time
		want core.Instant
	}{
		{"first valid instant", epoch.Add(-first + 1), 1},
		{"set back to before all readings", epoch.Add(-first), 0},
		{"set back by a century", epoch.AddDate(-100, 0, 0), 0},
		{"last valid instant", epoch.Add(1<<62 - 1 - first), 1<<62 - 1},
		{"beyond all readings", epoch.Add(1<<62 - first), 0},
		{"beyond what an Instant holds", epoch.Add(math.MaxInt64 - first), 0},
		{"beyond what a Duration holds", epoch.AddDate(1000, 0, 0), 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			mock := bbj.NewMock() // at the epoch
			c := From(mock)
			mock.Set(tc.set)
			if got := c.Now(); got != tc.want {
				t.Errorf("Now() = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestRealClockNeverDecreases(t *testing.T) {
	c := From(bbj.New())
	last := c.Now()
	for range 10_000 {
		now := c.Now()
		if now < last {
			t.Fatalf("Now() = %d after %d, want no less", now, last)
		}
		last = now
	}
}

func TestDescribesItself(t *testing.T) {
	info := clock.Describe(From(bbj.New()))
	if info.Name != "benbjohnson" || info.CountsSuspend || info.Warning == "" || info.Cost <= 0 {
		t.Errorf("Describe() = %+v, want a name, a cost, a warning and no promise about suspend", info)
	}
}
