package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// getter is what kvnode get was told.
type getter struct {
	caller
	span
	form

	rev, limit                         int64
	serializable, keysOnly, valuesOnly bool
}

func newGet(sys *System) *cobra.Command {
	g := &getter{}
	cmd := &cobra.Command{
		Use:   "get KEY [RANGE_END]",
		Short: "Print keys and their values",
		Long: `Get prints a key and its value, a line each, or all keys from KEY to before RANGE_END. It prints
nothing of a key that is not there, and exits with 0. The read is linearizable.`,
		Args: argsUpTo(2),
		RunE: func(c *cobra.Command, args []string) error { return g.run(c.Context(), sys, args) },
	}
	flags := cmd.Flags()
	g.caller.flags(sys, flags, commandTimeout)
	g.span.flags(flags)
	g.form.flags(cmd)
	flags.Int64Var(&g.rev, "rev", 0, "as of this revision; 0 is the newest")
	flags.Int64Var(&g.limit, "limit", 0, "so many keys at most; 0 is all")
	flags.BoolVar(&g.serializable, "serializable", false, "what the asked member has, which may be stale")
	flags.BoolVar(&g.keysOnly, "keys-only", false, "no values")
	flags.BoolVar(&g.valuesOnly, "print-value-only", false, "no keys")
	return cmd
}

func (g *getter) run(ctx context.Context, sys *System, args []string) error {
	opts, err := g.options(args)
	if err != nil {
		return err
	}
	switch {
	case g.form.check() != nil:
		return g.form.check()
	case g.keysOnly && g.valuesOnly:
		return usageError{errors.New("--keys-only and --print-value-only exclude each other")}
	case g.rev < 0:
		return usageError{fmt.Errorf("--rev %d must be 0 at least", g.rev)}
	case g.limit < 0:
		return usageError{fmt.Errorf("--limit %d must be 0 at least", g.limit)}
	}
	opts = append(opts, clientv3.WithRev(g.rev), clientv3.WithLimit(g.limit))
	if g.serializable {
		opts = append(opts, clientv3.WithSerializable())
	}
	if g.keysOnly {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	return g.within(ctx, func(ctx context.Context, c *clientv3.Client) error {
		got, err := c.Get(ctx, args[0], opts...)
		if err != nil {
			return err
		}
		return g.print(sys.Stdout, (*pb.RangeResponse)(got), func(w io.Writer) error { return g.simple(w, got) })
	})
}

func (g *getter) simple(w io.Writer, got *clientv3.GetResponse) error {
	for _, kv := range got.Kvs {
		err := error(nil)
		switch {
		case g.keysOnly:
			_, err = fmt.Fprintf(w, "%s\n", kv.GetKey())
		case g.valuesOnly:
			_, err = fmt.Fprintf(w, "%s\n", kv.GetValue())
		default:
			err = printKV(w, kv)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
