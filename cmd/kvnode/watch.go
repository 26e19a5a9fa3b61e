package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watcher holds the flags of kvnode watch.
type watcher struct {
	caller
	span
	form

	rev    int64
	prevKV bool
}

func newWatch(sys *System) *cobra.Command {
	w := &watcher{}
	cmd := &cobra.Command{
		Use:   "watch KEY [RANGE_END]",
		Short: "Print what happens to keys",
		Long: `Watch prints PUT or DELETE, the key and the value, a line each, for each change from now on, or from
--rev on, until it is interrupted; --timeout is for it to begin. With -w json a line has what one
message had. It goes on by itself
where members fail, and misses and repeats nothing; it ends with 1 if history was compacted that it
has not seen.`,
		Args: argsUpTo(2),
		RunE: func(c *cobra.Command, args []string) error { return w.run(c.Context(), sys, args) },
	}
	flags := cmd.Flags()
	w.caller.flags(sys, flags, commandTimeout)
	w.span.flags(flags)
	w.form.flags(cmd)
	flags.Int64Var(&w.rev, "rev", 0, "from this revision on; 0 is from now on")
	flags.BoolVar(&w.prevKV, "prev-kv", false, "the key and value before each change as well")
	return cmd
}

func (w *watcher) run(ctx context.Context, sys *System, args []string) error {
	opts, err := w.options(args)
	if err := errors.Join(err, w.form.check()); err != nil {
		return err
	}
	if w.rev < 0 {
		return usageError{fmt.Errorf("--rev %d must be 0 at least", w.rev)}
	}
	opts = append(opts, clientv3.WithRev(w.rev), clientv3.WithCreatedNotify())
	if w.prevKV {
		opts = append(opts, clientv3.WithPrevKV())
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	return w.with(func(c *clientv3.Client) error {
		ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
		defer cancel(nil)
		unanswered := time.AfterFunc(w.timeout, func() { cancel(context.DeadlineExceeded) })
		defer unanswered.Stop()
		for got := range c.Watch(ctx, args[0], opts...) {
			unanswered.Stop() // the first says that the watch has begun
			if err := errors.Join(got.Err(), w.events(sys.Stdout, &got)); err != nil {
				return err
			}
		}
		return watchEnd(context.Cause(ctx))
	})
}

// watchEnd returns the error of a watch that ended although it was not canceled.
func watchEnd(cause error) error {
	switch {
	case cause == nil:
		return errors.New("the watch has ended")
	case errors.Is(cause, context.DeadlineExceeded):
		return cause
	default:
		return nil // interrupted
	}
}

func (w *watcher) events(out io.Writer, got *clientv3.WatchResponse) error {
	if len(got.Events) == 0 {
		return nil
	}
	answer := &pb.WatchResponse{Header: got.Header, Events: got.Events}
	return w.print(out, answer, func(out io.Writer) error {
		for _, e := range got.Events {
			if err := w.event(out, e); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *watcher) event(out io.Writer, e *clientv3.Event) error {
	if _, err := fmt.Fprintln(out, e.GetType()); err != nil {
		return err
	}
	if e.GetPrevKv() != nil {
		if err := printKV(out, e.GetPrevKv()); err != nil {
			return err
		}
	}
	return printKV(out, e.GetKv())
}
