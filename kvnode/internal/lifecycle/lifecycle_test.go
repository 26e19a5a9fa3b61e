package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDisk = errors.New("disk on fire")

// A member stops, or fails, once: the first Stop or Fail counts, and both may be called by a goroutine of the member.
func TestLifecycle(t *testing.T) {
	for _, test := range []struct {
		name       string
		end        func(l *Lifecycle)
		err, alive error
		lines      int // of the log
	}{
		{"stop", func(l *Lifecycle) { l.Stop(); l.Stop() }, nil, ErrStopped, 0},
		{"fail", func(l *Lifecycle) { l.Fail(errDisk) }, errDisk, errDisk, 1},
		{"fail twice", func(l *Lifecycle) { l.Fail(errDisk); l.Fail(errors.New("later")) }, errDisk, errDisk, 1},
		{"stop, then fail", func(l *Lifecycle) { l.Stop(); l.Fail(errDisk) }, nil, ErrStopped, 0},
		{"fail, then stop", func(l *Lifecycle) { l.Fail(errDisk); l.Stop() }, errDisk, errDisk, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				l := New(slog.New(slog.NewTextHandler(&log, nil)))
				ended := false
				l.Go(func() {
					<-l.Stopping()
					time.Sleep(time.Second)
					ended = true
				})
				l.Go(func() { time.Sleep(time.Second); test.end(l) })
				synctest.Wait()
				if l.IsStopping() || l.Alive() != nil || l.Err() != nil {
					t.Errorf("IsStopping() = %v, Alive() = %v, Err() = %v of a member that runs", l.IsStopping(), l.Alive(), l.Err())
				}
				l.Wait()
				if !ended {
					t.Error("Wait() has returned before a goroutine")
				}
				if !l.IsStopping() || !errors.Is(l.Alive(), test.alive) || !errors.Is(l.Err(), test.err) {
					t.Errorf("IsStopping() = %v, Alive() = %v, Err() = %v, want true, %v and %v", l.IsStopping(), l.Alive(), l.Err(), test.alive, test.err)
				}
				if got := strings.Count(log.String(), "\n"); got != test.lines {
					t.Errorf("%d lines, want %d: %s", got, test.lines, log.String())
				}
				select {
				case <-l.Done():
					t.Error("Done() is closed before MarkStopped()")
				default:
				}
				l.MarkStopped()
				<-l.Done()
			})
		})
	}
}

// A sleep ends after its time, with its context, or with the member.
func TestSleep(t *testing.T) {
	errGone := errors.New("the client has gone")
	synctest.Test(t, func(t *testing.T) {
		l := New(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancelCause(t.Context())
		began := time.Now()
		if err := l.SleepContext(ctx, time.Second); err != nil || !l.Sleep(time.Second) || time.Since(began) != 2*time.Second {
			t.Errorf("two sleeps of 1s end after %v with %v", time.Since(began), err)
		}
		l.Go(func() { time.Sleep(time.Second); cancel(errGone); time.Sleep(time.Second); l.Fail(errDisk) })
		if err := l.SleepContext(ctx, time.Minute); !errors.Is(err, errGone) {
			t.Errorf("SleepContext() = %v, want the cause of its context", err)
		}
		if err := l.SleepContext(t.Context(), time.Minute); !errors.Is(err, ErrStopped) || l.Sleep(time.Minute) || time.Since(began) != 4*time.Second {
			t.Errorf("SleepContext() = %v after %v, want it ended by the member", err, time.Since(began))
		}
	})
}

// A mailbox wakes its receiver, keeps the order, and refers to nothing that was drained.
func TestMailbox(t *testing.T) {
	b := Mailbox[*int]{Wakeup: NewWakeup()}
	var senders sync.WaitGroup
	for range 2 {
		senders.Go(func() {
			for i := range 1000 {
				b.Push(&i)
			}
		})
	}
	var got, spare []*int
	for len(got) < 2000 {
		<-b.Wakeup
		spare = b.Drain(spare)
		got = append(got, spare...)
	}
	senders.Wait()

	b.Push(got[1], got[0], got[2], got[1])
	b.DeleteFirst(func(i *int) bool { return i == got[1] })
	b.DeleteFirst(func(i *int) bool { return i == nil })
	if b.Len() != 3 {
		t.Errorf("Len() = %d of 4 items after one was deleted", b.Len())
	}
	first := b.Drain(nil)
	b.Push(got[3])
	if !slices.Equal(first, []*int{got[0], got[2], got[1]}) || b.Len() != 1 {
		t.Errorf("Drain() = %v and %d items were pushed since, want the first of two equal items deleted, and 1", first, b.Len())
	}
	b.Drain(first)
	if !slices.Equal(first, make([]*int, 3)) {
		t.Errorf("the spare slice refers to %v, want nothing", first)
	}
}
