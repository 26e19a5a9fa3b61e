package testcluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/internal/kvclient"
)

// Client returns etcd's client, connected to this member alone.
func (m *Member) Client(opts ...grpc.DialOption) (*clientv3.Client, error) {
	return kvclient.New(m.TLS, []string{m.Endpoint}, opts...)
}

// Client returns a client like those of its members that chooses among all of
// them.
func (c *Cluster) Client(opts ...grpc.DialOption) (*clientv3.Client, error) {
	return kvclient.New(c.members[0].TLS, c.Endpoints(), opts...)
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

// WaitStatus asks the member for its status until it answers.
func (m *Member) WaitStatus(ctx context.Context) (*clientv3.StatusResponse, error) {
	for {
		s, err := m.Status(ctx)
		if err == nil {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("status of %s: %w", m.Name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Status asks the member for its status once. A busy machine may need longer than
// statusTimeout for the answer: see WaitStatus.
func (m *Member) Status(ctx context.Context) (s *clientv3.StatusResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	err = m.Use(func(c *clientv3.Client) error {
		s, err = c.Status(ctx, m.Endpoint)
		return err
	})
	return s, err
}
