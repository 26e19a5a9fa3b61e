package pause

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := For(t.Context(), time.Second); err != nil || time.Since(begun) != time.Second {
			t.Errorf("For(1s) = %v after %v, want nil after 1s", err, time.Since(begun))
		}
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		begun = time.Now()
		if err := For(ctx, time.Hour); !errors.Is(err, why) || time.Since(begun) != time.Second {
			t.Errorf("For(1h) = %v after %v, want %v after 1s", err, time.Since(begun), why)
		}
	})
}
