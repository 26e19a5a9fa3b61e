package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// locker holds the arguments and flags of kvnode lock.
type locker struct {
	caller

	name    string
	command []string
	ttl     time.Duration
}

const lockLong = `Lock waits for the lock NAME, prints its key and its fencing token, and holds it until it is
interrupted, or for as long as COMMAND runs, which finds them in its environment as ETCD_LOCK_KEY and
KVNODE_FENCING_TOKEN. It exits with the code of COMMAND, or 128 and the number of the signal that has ended it.
SIGINT, SIGTERM, SIGHUP and SIGQUIT are COMMAND's to handle, and are passed on to it; in the foreground of a
terminal SIGINT and SIGQUIT are not, as the terminal sends them to both. On Linux COMMAND ends with kvnode lock.

A token is greater than that of each holder before. A holder that was paused for longer than --ttl does not
know that another one has the lock by now: what the lock protects has to refuse tokens smaller than
the greatest it has seen. A lock that is known to be lost kills COMMAND, but not what that has started: a
shell should exec what must end.`

func newLock(sys *System) *cobra.Command {
	l := &locker{}
	cmd := &cobra.Command{
		Use:   "lock NAME [-- COMMAND [ARG...]]",
		Short: "Hold a lock while a command runs, or until interrupted",
		Long:  lockLong,
		Args:  argsUpTo(-1),
		RunE: func(c *cobra.Command, args []string) error {
			l.name, l.command = args[0], args[1:]
			return l.run(c.Context(), sys)
		},
	}
	l.caller.flags(sys, cmd.Flags(), commandTimeout)
	cmd.Flags().DurationVar(&l.ttl, "ttl", 10*time.Second, "how long the lock outlives a holder that is gone, in whole seconds")
	return cmd
}

func (l *locker) run(ctx context.Context, sys *System) error {
	switch {
	case l.name == "":
		return usageError{errors.New(`NAME "" must not be empty`)}
	case l.ttl < time.Second || l.ttl%time.Second != 0:
		return usageError{fmt.Errorf("--ttl %v must be whole seconds, 1s at least", l.ttl)}
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	return l.with(func(c *clientv3.Client) error { return l.hold(ctx, c, sys) })
}

// hold takes the lock, runs use, and releases the lock.
func (l *locker) hold(ctx context.Context, c *clientv3.Client, sys *System) (err error) {
	answered, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	granted, err := c.Grant(answered, int64(l.ttl.Seconds()))
	if err != nil {
		return err
	}
	// The TTL bounds the time that Close waits for an answer; without it that is a minute.
	session, err := concurrency.NewSession(c, concurrency.WithLease(granted.ID), concurrency.WithTTL(int(granted.TTL)))
	if err != nil {
		return err
	}
	// Its revocation deletes the lock's key.
	defer func() { err = errors.Join(err, session.Close()) }()
	mutex := concurrency.NewMutex(session, l.name)
	if err := mutex.Lock(ctx); err != nil {
		if ctx.Err() != nil {
			return errReported // interrupted while it waited
		}
		return err
	}
	got, err := c.Get(ctx, mutex.Key())
	if err != nil {
		return err
	}
	if len(got.Kvs) == 0 {
		return errLockLost
	}
	return l.use(ctx, session, mutex.Key(), got.Kvs[0].GetCreateRevision(), sys)
}

var errLockLost = errors.New("the lock is lost: its TTL lease has ended")

// use runs the command under the lock, or prints the lock and waits.
func (l *locker) use(ctx context.Context, session *concurrency.Session, key string, token int64, sys *System) error {
	if len(l.command) > 0 {
		environ := append(os.Environ(), "ETCD_LOCK_KEY="+key, fmt.Sprint("KVNODE_FENCING_TOKEN=", token))
		return runLocked(ctx, session.Done(), l.command, environ, sys)
	}
	if _, err := fmt.Fprintf(sys.Stdout, "%s\n%d\n", key, token); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-session.Done():
		return errLockLost
	}
}

// runLocked runs a command, and kills it when the lock is lost. The command handles signals itself;
// a signal that arrived earlier has canceled asked, and the command is not started. On Linux the
// command dies with this process, because nothing would renew its lock any longer.
func runLocked(asked context.Context, lost <-chan struct{}, command, environ []string, sys *System) error {
	runtime.LockOSThread() // it would end with this thread
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(asked))
	defer cancel(nil)
	// #nosec G204 -- the user's command line names the command.
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, os.Stdin, sys.Stdout, sys.Stderr
	cmd.SysProcAttr = untilWeEnd()
	passed := passedOn()
	signals := make(chan os.Signal, len(passed)) // none is lost while the command begins
	signal.Notify(signals, passed...)
	defer signal.Stop(signals)
	if asked.Err() != nil {
		return errReported // interrupted right after taking the lock: the command would miss the signal
	}
	if err := cmd.Start(); err != nil {
		return usageError{err}
	}
	go func() {
		for {
			select {
			case <-lost:
				cancel(errLockLost)
				return
			case s := <-signals:
				if !typed(s) {
					_ = cmd.Process.Signal(s) // it may have ended just now
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	err := cmd.Wait()
	if err != nil {
		err = fmt.Errorf("%s: %w", command[0], err)
	}
	return errors.Join(context.Cause(ctx), err)
}

// passedOn returns the signals that users and terminals send to end a process, without those that were
// ignored from the start, as under nohup or in the background of a script.
func passedOn() []os.Signal {
	return slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, signal.Ignored)
}
