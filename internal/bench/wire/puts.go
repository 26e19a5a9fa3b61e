package wire

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/pause"
)

// puts are what was written. Each value says what it is.
type puts struct {
	run   [runLen]byte // tells these puts from those of another measurement
	acked int64        // the number of the newest that was acknowledged

	mu struct {
		sync.Mutex
		failed map[int64]bool // by number: nobody knows whether they took effect
	}
}

func newPuts() *puts {
	p := &puts{}
	_, _ = rand.Read(p.run[:]) // never fails
	p.mu.failed = make(map[int64]bool)
	return p
}

func (p *puts) put(ctx context.Context, c *clientv3.Client, number int64, begun time.Time) error {
	_, err := c.Put(ctx, watchedKey, p.encode(number, begun))
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.failed[number] = true
		return err
	}
	p.acked = number
	return nil
}

// failed reports whether a put that has ended has failed.
func (p *puts) failed(number int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.failed[number]
}

// end tells all watchers that there is no more, which must get through.
func (p *puts) end(ctx context.Context, c *clientv3.Client) error {
	for {
		_, err := c.Put(ctx, watchedKey, p.encode(lastPut, time.Now()))
		if err == nil || ctx.Err() != nil {
			return err
		}
		_ = pause.For(ctx, reopenPause)
	}
}

const (
	runLen   = 8
	valueLen = 128 // as all values of package suite
	// lastPut is the number of the put that says that there is no more.
	lastPut = 1<<63 - 1
)

// epoch is what times in values count from. They never leave this process.
var epoch = time.Now()

// encode says in a value which put it is and when it began.
func (p *puts) encode(number int64, begun time.Time) string {
	v := make([]byte, valueLen)
	copy(v, p.run[:])
	binary.BigEndian.PutUint64(v[runLen:], uint64(number))
	binary.BigEndian.PutUint64(v[runLen+8:], uint64(begun.Sub(epoch)))
	return string(v)
}

// decode returns false for a value of another measurement.
func (p *puts) decode(v []byte) (number int64, begun time.Time, ok bool) {
	if len(v) != valueLen || [runLen]byte(v) != p.run {
		return 0, time.Time{}, false
	}
	number = int64(binary.BigEndian.Uint64(v[runLen:]))
	return number, epoch.Add(time.Duration(binary.BigEndian.Uint64(v[runLen+8:]))), true
}
