package load

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFailuresAreCountedByText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := newRegister(time.Millisecond)
		target.fail = func(n int) error {
			if n%10 == 0 {
				time.Sleep(time.Millisecond)
				return errors.New("every tenth " + strings.Repeat("x", 200))
			}
			return nil
		}
		r := runLoad(t, Load{Target: Each{target}, Clients: 1, Keys: Keys{Count: 1}, Duration: time.Second})
		if r.Read.Failed < 99 || r.Read.Failed > 101 || len(r.Read.Errors) != 1 {
			t.Errorf("%d of %d failed with %d texts, want a tenth with one", r.Read.Failed, r.Read.Done, len(r.Read.Errors))
		}
		if timed := r.Read.Latency.TotalCount(); timed < r.Read.Done || timed > r.Read.Done+1 {
			t.Errorf("%d latencies of %d reads that were done", timed, r.Read.Done)
		}
	})
}

func TestErrorTextsAreBounded(t *testing.T) {
	all := NewTally()
	for i := range 100 {
		all.Fail(errors.New("text " + strings.Repeat("y", i)))
	}
	if all.Failed != 100 || len(all.Errors) > maxTexts+1 {
		t.Errorf("%d failures under %d texts, want 100 under at most %d", all.Failed, len(all.Errors), maxTexts+1)
	}
}

type hanging struct{}

func (hanging) Read(ctx context.Context, _ int) (Seen, error) {
	<-ctx.Done()
	return Seen{}, context.Cause(ctx)
}

func (hanging) Write(ctx context.Context, _ int) (uint64, error) {
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

func TestInvalidLoadsAreRefused(t *testing.T) {
	ok := Load{Target: Each{hanging{}}, Clients: 1, Keys: Keys{Count: 1}, Duration: time.Second}
	for _, c := range []struct {
		name string
		bad  func(*Load)
		want string
	}{
		{"no target", func(l *Load) { l.Target = nil }, "no target"},
		{"no clients", func(l *Load) { l.Clients = 0 }, "clients 0"},
		{"no time", func(l *Load) { l.Duration = 0 }, "duration 0s"},
		{"negative rate", func(l *Load) { l.Rate = -1 }, "rate -1"},
		{"rate beyond all measure", func(l *Load) { l.Rate = 1e8 }, "at most 10000000"},
		{"more writes than operations", func(l *Load) { l.WritePercent = 101 }, "101"},
		{"no keys", func(l *Load) { l.Keys.Count = 0 }, "keys 0"},
		{"zipf that has no sum", func(l *Load) { l.Keys.Zipf = 1 }, "zipf exponent 1"},
		{"small floor", func(l *Load) { l.Keys.Count = 2; l.Floor = NewFloor(1) }, "floor of 1"},
	} {
		l := ok
		c.bad(&l)
		if _, err := l.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Run() = %v, want an error with %q", c.name, err, c.want)
		}
	}
}
