package cli

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

// commandTimeout is etcdctl's: longer than an election takes.
const commandTimeout = 5 * time.Second

// putter is what kvnode put and kvnode del were told.
type putter struct {
	caller
	span
	form

	ttl string
}

func newPut(sys *System) *cobra.Command {
	p := &putter{}
	cmd := &cobra.Command{
		Use:   "put KEY [VALUE]",
		Short: "Set a key",
		Long: `Put sets a key to a value, which it reads from standard input where none is given, and prints OK. If no
answer comes within --timeout, the key may be set or not.`,
		Args: argsUpTo(2),
		RunE: func(c *cobra.Command, args []string) error { return p.put(c, sys, args) },
	}
	p.caller.flags(sys, cmd.Flags(), commandTimeout)
	p.form.flags(cmd)
	cmd.Flags().StringVar(&p.ttl, "lease", "", "ID of the TTL lease that the key ends with, in hex")
	return cmd
}

func (p *putter) put(cmd *cobra.Command, sys *System, args []string) error {
	if err := p.form.check(); err != nil {
		return err
	}
	if args[0] == "" {
		return usageError{errors.New(`KEY "" must not be empty`)}
	}
	var opts []clientv3.OpOption
	if p.ttl != "" {
		var id clientv3.LeaseID
		if n, err := fmt.Sscanf(p.ttl+" ", "%x ", &id); n != 1 || err != nil || id <= 0 {
			return usageError{fmt.Errorf("--lease %q must be a positive number in hex", p.ttl)}
		}
		opts = append(opts, clientv3.WithLease(id))
	}
	if len(args) == 1 {
		value, err := io.ReadAll(cmd.InOrStdin())
		if err != nil {
			return fmt.Errorf("read the value from standard input: %w", err)
		}
		args = append(args, string(value))
	}
	return p.within(cmd.Context(), func(ctx context.Context, c *clientv3.Client) error {
		done, err := c.Put(ctx, args[0], args[1], opts...)
		if err != nil {
			return err
		}
		return p.print(sys.Stdout, (*pb.PutResponse)(done), func(w io.Writer) error { _, err := fmt.Fprintln(w, "OK"); return err })
	})
}

func newDel(sys *System) *cobra.Command {
	p := &putter{}
	cmd := &cobra.Command{
		Use:   "del KEY [RANGE_END]",
		Short: "Delete keys",
		Long: `Del deletes a key, or all keys from KEY to before RANGE_END, and prints how many there were. If no answer
comes within --timeout, they may be deleted or not.`,
		Args: argsUpTo(2),
		RunE: func(c *cobra.Command, args []string) error { return p.del(c.Context(), sys, args) },
	}
	p.caller.flags(sys, cmd.Flags(), commandTimeout)
	p.span.flags(cmd.Flags())
	p.form.flags(cmd)
	return cmd
}

func (p *putter) del(ctx context.Context, sys *System, args []string) error {
	opts, err := p.options(args)
	if err := errors.Join(err, p.form.check()); err != nil {
		return err
	}
	return p.within(ctx, func(ctx context.Context, c *clientv3.Client) error {
		done, err := c.Delete(ctx, args[0], opts...)
		if err != nil {
			return err
		}
		return p.print(sys.Stdout, (*pb.DeleteRangeResponse)(done), func(w io.Writer) error { _, err := fmt.Fprintln(w, done.Deleted); return err })
	})
}
