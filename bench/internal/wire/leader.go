package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Roles are the endpoints of a cluster by their role.
type Roles struct {
	Leader string
	// Follower is empty in a cluster of one.
	Follower string
	// Version is the version of the leader.
	Version string
}

const (
	askTimeout = time.Second
	askPause   = 50 * time.Millisecond
)

// Find asks all endpoints until one says that it leads and every other one
// agrees.
func Find(ctx context.Context, endpoints []string) (*Roles, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("wire: no endpoints")
	}
	var last error
	for {
		roles, err := find(ctx, endpoints)
		if err == nil {
			return roles, nil
		}
		last = err
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wire: find the leader of %v: %w: %w", endpoints, ctx.Err(), last)
		case <-time.After(askPause):
		}
	}
}

func find(ctx context.Context, endpoints []string) (*Roles, error) {
	c, err := newClient(endpoints...)
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // nothing is under way
	r := &Roles{}
	var leader uint64
	for _, e := range endpoints {
		s, err := ask(ctx, c, e)
		if err != nil {
			return nil, err
		}
		if s.Leader == 0 || leader != 0 && s.Leader != leader {
			return nil, fmt.Errorf("wire: %s says that member %x leads, another one said %x", e, s.Leader, leader)
		}
		leader = s.Leader
		if s.Leader == s.Header.GetMemberId() {
			r.Leader, r.Version = e, s.Version
		} else {
			r.Follower = e
		}
	}
	if r.Leader == "" {
		return nil, fmt.Errorf("wire: member %x leads and is none of %v", leader, endpoints)
	}
	return r, nil
}

func ask(ctx context.Context, c *clientv3.Client, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return c.Status(ctx, endpoint)
}
