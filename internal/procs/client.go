package procs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Client returns etcd's client, connected to this member alone. It makes each
// request once: who judges a history must know what was asked. It reconnects
// soon, since members come back soon.
func (m *Member) Client(opts ...grpc.DialOption) (*clientv3.Client, error) {
	return client(m.TLS, []string{m.Endpoint}, opts...)
}

// Client returns a client like those of its members that chooses among all of
// them.
func (c *Cluster) Client() (*clientv3.Client, error) { return client(c.members[0].TLS, c.Endpoints()) }

func client(secure *tls.Config, endpoints []string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	opts = append(opts, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.3, Jitter: 0.2, MaxDelay: 50 * time.Millisecond},
		MinConnectTimeout: time.Second,
	}))
	c, err := clientv3.New(clientv3.Config{
		Endpoints:       endpoints,
		TLS:             secure,
		MaxUnaryRetries: 1,
		Logger:          zap.NewNop(),
		DialOptions:     opts,
	})
	if err != nil {
		return nil, fmt.Errorf("client of %v: %w", endpoints, err)
	}
	return c, nil
}

// Use gives f a client of this member, for the time of the call.
func (m *Member) Use(f func(*clientv3.Client) error) error {
	c, err := m.Client()
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

// statusTimeout bounds one question to one member.
const statusTimeout = 500 * time.Millisecond

// Leader waits until a member says that it leads, and returns it.
func (c *Cluster) Leader(ctx context.Context) (*Member, error) {
	for {
		for _, m := range c.members {
			if m.leads(ctx) {
				return m, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no member leads: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// leads reports whether the member itself says that it leads.
func (m *Member) leads(ctx context.Context) bool {
	if !m.Running() {
		return false
	}
	s, err := m.Status(ctx)
	return err == nil && s.Leader == s.Header.GetMemberId()
}

// Status asks the member for its status.
func (m *Member) Status(ctx context.Context) (s *clientv3.StatusResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	err = m.Use(func(c *clientv3.Client) error {
		s, err = c.Status(ctx, m.Endpoint)
		return err
	})
	return s, err
}
