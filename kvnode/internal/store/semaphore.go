package store

import "context"

// semaphore is a mutex that can be waited for until a context ends.
type semaphore chan struct{}

func newSemaphore() semaphore { return make(semaphore, 1) }

func (m semaphore) take() { m <- struct{}{} }

func (m semaphore) takeContext(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m semaphore) release() { <-m }
