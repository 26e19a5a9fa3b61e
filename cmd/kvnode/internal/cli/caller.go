package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/client"
)

// caller is what commands that ask a cluster were told of it.
type caller struct {
	endpoints []string
	secure    secure
	timeout   time.Duration
}

func (c *caller) flags(fs *pflag.FlagSet, timeout time.Duration) {
	fs.StringSliceVar(&c.endpoints, "endpoints", []string{"127.0.0.1:2379"}, "client URLs or addresses of the members")
	c.secure.flags(fs)
	fs.DurationVar(&c.timeout, "timeout", timeout, "how long to wait for an answer")
}

func (c *caller) check() error {
	switch {
	case len(c.endpoints) == 0:
		return usageError{errors.New("--endpoints names no member")}
	case c.timeout <= 0:
		return usageError{fmt.Errorf("--timeout %v must be positive", c.timeout)}
	}
	return nil
}

// config is that of a client of all endpoints, which finds the leader among them.
func (c *caller) config() (clientv3.Config, error) {
	cfg := clientv3.Config{Endpoints: c.endpoints, DialOptions: client.DialOptions(), Logger: zap.NewNop()}
	if err := c.check(); err != nil {
		return cfg, err
	}
	secured := c.secure.given()
	for _, name := range c.endpoints {
		if _, _, err := c.secure.endpoint(name); err != nil {
			return cfg, usageError{err}
		}
		secured = secured || strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "unixs://")
	}
	if !secured {
		return cfg, nil
	}
	files, err := c.secure.config()
	if err != nil {
		return cfg, usageError{err}
	}
	cfg.TLS = files
	return cfg, nil
}

// with runs do with a client.
func (c *caller) with(do func(*clientv3.Client) error) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	cl, err := clientv3.New(cfg)
	if err != nil {
		return usageError{fmt.Errorf("--endpoints %q: %w", c.endpoints, err)}
	}
	defer func() { _ = cl.Close() }() // nothing is under way
	return c.told(do(cl))
}

// within runs do with a client for as long as --timeout says.
func (c *caller) within(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	return c.with(func(cl *clientv3.Client) error {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		return do(ctx, cl)
	})
}

// told is err as people read it, with whom was asked.
func (c *caller) told(err error) error {
	if _, ok := errors.AsType[usageError](err); ok || err == nil {
		return err
	}
	if _, ok := errors.AsType[*exec.ExitError](err); ok && !errors.Is(err, errLockLost) {
		return err // of what kvnode lock has run
	}
	late := errors.Is(err, context.DeadlineExceeded)
	if s, ok := grpcstatus.FromError(err); ok {
		late = s.Code() == codes.DeadlineExceeded
		err = errors.New(plain(s.Message()))
	}
	err = fmt.Errorf("%s: %w", strings.Join(c.endpoints, ","), err)
	if late { // clients try again until then, and forget why
		err = errors.Join(err, c.unreached())
	}
	return err
}

// reachTime is for how long a member is looked for that has not answered. It comes on top of --timeout.
const reachTime = 300 * time.Millisecond

// unreached says why members cannot be connected to, nothing of those that can.
func (c *caller) unreached() error {
	var errs []error
	deadline := time.Now().Add(reachTime)
	for _, name := range c.endpoints {
		network := "tcp"
		if scheme, rest, ok := strings.Cut(name, "://"); ok {
			name = rest
			if strings.HasPrefix(scheme, "unix") {
				network = "unix"
			}
		}
		conn, err := (&net.Dialer{Deadline: deadline}).Dial(network, strings.TrimSuffix(name, "/"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_ = conn.Close()
	}
	return errors.Join(errs...)
}

// untilInterrupted ends its context at the first signal, and leaves the second one to the system. What was
// ignored from the start stays so.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ends := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(os.Interrupt) {
		ends = append(ends, os.Interrupt)
	}
	ctx, stop := signal.NotifyContext(ctx, ends...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
