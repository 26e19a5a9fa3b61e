package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/bench/internal/load"
	"github.com/leaderlease/go/internal/kvclient"
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
	askPause   = 20 * time.Millisecond
)

// Find asks all endpoints until one says that it leads and every other one agrees. Secure is
// nil for plain text.
func Find(ctx context.Context, secure *tls.Config, endpoints []string) (*Roles, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("no endpoints")
	}
	for {
		roles, err := find(ctx, secure, endpoints)
		if err == nil {
			return roles, nil
		}
		if stopped := load.Sleep(ctx, askPause); stopped != nil {
			return nil, fmt.Errorf("find the leader of %v: %w: %w", endpoints, stopped, err)
		}
	}
}

func find(ctx context.Context, secure *tls.Config, endpoints []string) (*Roles, error) {
	c, err := kvclient.New(secure, endpoints)
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
			return nil, fmt.Errorf("%s says that member %x leads, another one said %x", e, s.Leader, leader)
		}
		leader = s.Leader
		if s.Leader == s.Header.GetMemberId() {
			r.Leader, r.Version = e, s.Version
		} else {
			r.Follower = e
		}
	}
	if r.Leader == "" {
		return nil, fmt.Errorf("member %x leads and is none of %v", leader, endpoints)
	}
	return r, nil
}

func ask(ctx context.Context, c *clientv3.Client, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return c.Status(ctx, endpoint)
}
