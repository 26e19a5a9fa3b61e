package wire

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/internal/kvclient"
)

// ErrNoTTLLeases says that locks cannot be measured.
var ErrNoTTLLeases = errors.New("wire: the endpoint has no TTL leases, which locks of clientv3/concurrency need")

// lockTTL is in seconds; a session renews it by itself.
const lockTTL = 10

// Lockers are clients that take locks.
type Lockers struct {
	clients  []*clientv3.Client
	sessions []*concurrency.Session
	keys     []string
	shared   bool
}

// NewLockers connects n clients, each with a session of its own. With shared all
// compete for one lock; otherwise each has its own.
func NewLockers(ctx context.Context, endpoints []string, n int, shared bool) (*Lockers, error) {
	l := &Lockers{shared: shared}
	for i := range n {
		if err := l.add(ctx, endpoints, i); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

func (l *Lockers) add(ctx context.Context, endpoints []string, i int) error {
	c, err := newClient(endpoints...)
	if err != nil {
		return err
	}
	l.clients = append(l.clients, c)
	// Asked by hand first: a session would only say that it is orphaned.
	grant, err := c.Grant(ctx, lockTTL)
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%w: %v answers: %w", ErrNoTTLLeases, endpoints, err)
	}
	if err != nil {
		return fmt.Errorf("grant a TTL lease: %w", err)
	}
	s, err := concurrency.NewSession(c, concurrency.WithLease(grant.ID))
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	l.sessions = append(l.sessions, s)
	key := "/locks/shared/"
	if !l.shared {
		key = fmt.Sprintf("/locks/%d/", i)
	}
	l.keys = append(l.keys, key)
	return nil
}

// Close ends the sessions.
func (l *Lockers) Close() error {
	return errors.Join(kvclient.Close(l.sessions), kvclient.Close(l.clients))
}
