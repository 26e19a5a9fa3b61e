package leaderlease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/leaderlease/go/leaderlease/core"
)

func TestReadWaitsUntilItsIndexIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := leading(t)
		first, second := p.commitNew(), p.commitNew()
		read := p.readSoon(t.Context())
		synctest.Wait()
		p.Applied(first)
		synctest.Wait()
		if n := p.Info().Waiting; n != 1 {
			t.Fatalf("Info().Waiting = %d before index %d is applied, want 1", n, second)
		}
		p.Applied(second)
		if a := <-read; a.read.Index != second || a.read.Path != PathLease || a.err != nil {
			t.Errorf("Read() = %+v, %v, want index %d under the lease", a.read, a.err, second)
		}
	})
}

func TestReadEndsWithItsContext(t *testing.T) {
	tests := []struct {
		name  string
		build func(testing.TB) *puppet
	}{
		{"while it waits for an index", func(tb testing.TB) *puppet { return expired(tb) }},
		{"while it waits for the state machine", func(tb testing.TB) *puppet {
			p := leading(tb)
			p.commitNew()
			return p
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := tc.build(t)
				ctx, cancel := context.WithCancel(t.Context())
				read, stays := p.readSoon(ctx), p.startRead()
				synctest.Wait()
				cancel()
				if a := <-read; !errors.Is(a.err, context.Canceled) || a.read != (ReadResult{}) {
					t.Errorf("Read() = %+v, %v, want nothing and context.Canceled", a.read, a.err)
				}
				if n := p.Info().Waiting; n != 1 {
					t.Errorf("Info().Waiting = %d, want the other read only", n)
				}
				// What comes for the read that has gone must do no harm.
				p.renew()
				p.Applied(p.last)
				if stays.calls != 1 || stays.err != nil {
					t.Errorf("the other read: called %d times, error %v, want once and served", stays.calls, stays.err)
				}
			})
		})
	}
}

// Reads that are given up by the thousand, as when a quorum is lost, leave
// nothing behind.
func TestAbandonedReadsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := expired(t)
		stays := p.startRead()
		ctx, cancel := context.WithCancel(t.Context())
		for range 1000 {
			p.readSoon(ctx)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if n := p.Info().Waiting; n != 1 {
			t.Errorf("Info().Waiting = %d after 1000 of 1001 reads were given up, want 1", n)
		}
		p.renew()
		if stays.calls != 1 || stays.err != nil {
			t.Errorf("the read that stayed: called %d times, error %v, want once and served", stays.calls, stays.err)
		}
	})
}

// Close also fails the reads that only wait for the state machine, since it may
// never get there; a change of leader does not, since their index is sound.
func TestWhatEndsTheWaitForTheStateMachine(t *testing.T) {
	p := leading(t)
	p.commitNew()
	o := p.startRead()
	p.follow(3, 2)
	if o.calls != 0 {
		t.Fatalf("read = %+v, %v when leadership moved, want it to wait for index %d", o.read, o.err, p.last)
	}
	p.Applied(p.last)
	if o.calls != 1 || o.err != nil || o.read.Path != PathLease || o.read.Term != 2 {
		t.Errorf("read = %+v, %v, want it served under the lease of term 2", o.read, o.err)
	}

	p = leading(t)
	p.commitNew()
	o = p.startRead()
	p.Close()
	if nl, ok := errors.AsType[*NoLeaseError](o.err); o.calls != 1 || !ok || nl.Status != core.Closed {
		t.Errorf("read after Close = %+v, called %d times, error %v, want closed", o.read, o.calls, o.err)
	}
}
