// Package pause sleeps no longer than a context lasts.
package pause

import (
	"context"
	"time"
)

// For returns nil after d, or ctx's cause as soon as ctx has ended.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
