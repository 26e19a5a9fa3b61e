package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/internal/testcluster"
)

const (
	// wholeTimeout is more than it takes to read millions of keys again, or to send them.
	wholeTimeout = 10 * time.Minute
	// readPatience is the timeout of one read after a restart.
	readPatience = time.Second
	lookPause    = 10 * time.Millisecond
)

// Restart kills all members, starts them, and returns how long it takes from then until
// one of them answers a linearizable read.
func Restart(ctx context.Context, c *testcluster.Cluster) (time.Duration, error) {
	if err := c.Kill(); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := c.Start(); err != nil {
		return 0, err
	}
	client, err := kvclient.New(nil, c.Endpoints())
	if err != nil {
		return 0, err
	}
	defer client.Close() //nolint:errcheck // nothing is under way
	err = until(ctx, "a read after the restart", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, readPatience)
		defer cancel()
		_, err := client.Get(ctx, "\x00", clientv3.WithLimit(1))
		return err
	})
	return time.Since(begun), err
}

// Join adds a member that has nothing, and returns how long it takes from its start
// until it has applied all that the leader had then.
func Join(ctx context.Context, c *testcluster.Cluster) (time.Duration, error) {
	leader, err := c.Leader(ctx)
	if err != nil {
		return 0, err
	}
	m, err := c.Join(fmt.Sprintf("joined%d", len(c.Members())))
	if err != nil {
		return 0, err
	}
	if err := leader.Use(func(client *clientv3.Client) error {
		_, err := client.MemberAdd(ctx, []string{"http://" + m.Peer})
		return err
	}); err != nil {
		return 0, fmt.Errorf("add a member: %w", err)
	}
	goal, err := leader.WaitStatus(ctx)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := m.Start(); err != nil {
		return 0, err
	}
	err = until(ctx, "a new member that has all", func(ctx context.Context) error {
		s, err := m.Status(ctx)
		if err == nil && s.RaftAppliedIndex < goal.RaftAppliedIndex {
			err = fmt.Errorf("it has applied up to index %d of %d", s.RaftAppliedIndex, goal.RaftAppliedIndex)
		}
		return err
	})
	return time.Since(begun), err
}

// until does fn again and again until it succeeds.
func until(ctx context.Context, what string, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, wholeTimeout)
	defer cancel()
	for {
		err := fn(ctx)
		if err == nil {
			return nil
		}
		if waited := durations.Sleep(ctx, lookPause); waited != nil {
			return fmt.Errorf("wait for %s: %w", what, errors.Join(waited, err))
		}
	}
}

// Disk returns how many bytes are in the largest of the members' data directories.
func Disk(c *testcluster.Cluster) (int64, error) {
	var all []int64
	for _, m := range c.Members() {
		n, err := diskOf(m)
		if err != nil {
			return 0, err
		}
		all = append(all, n)
	}
	return slices.Max(all), nil
}

func diskOf(m *testcluster.Member) (sum int64, err error) {
	err = filepath.WalkDir(m.Dir, func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the log gives segments back meanwhile
		}
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		sum += info.Size()
		return nil
	})
	return sum, err
}
