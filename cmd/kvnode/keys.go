package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// span selects the keys of a command: one key, the range from it to another key, or all keys with
// it as their prefix.
type span struct{ prefix bool }

func (s *span) flags(fs *pflag.FlagSet) {
	fs.BoolVar(&s.prefix, "prefix", false, `all keys that begin with KEY; with "" all there are`)
}

// options checks the arguments KEY [RANGE_END].
func (s *span) options(args []string) ([]clientv3.OpOption, error) {
	switch {
	case s.prefix && len(args) > 1:
		return nil, usageError{fmt.Errorf("RANGE_END %q and --prefix exclude each other", args[1])}
	case s.prefix:
		return []clientv3.OpOption{clientv3.WithPrefix()}, nil
	case args[0] == "":
		return nil, usageError{errors.New(`KEY "" must not be empty; with --prefix it means all keys`)}
	case len(args) > 1:
		return []clientv3.OpOption{clientv3.WithRange(args[1])}, nil
	}
	return nil, nil
}

// form is the output format of a command.
type form struct{ output string }

func (f *form) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.output, "write-out", "w", "simple", "simple, as etcdctl prints it, or json, as POST /v3/… answers")
	if err := cmd.RegisterFlagCompletionFunc("write-out", cobra.FixedCompletions([]string{"simple", "json"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
}

func (f *form) check() error {
	if f.output != "simple" && f.output != "json" {
		return usageError{fmt.Errorf("--write-out %q must be simple or json", f.output)}
	}
	return nil
}

// print writes an answer as JSON, or by calling simple.
func (f *form) print(w io.Writer, answer proto.Message, simple func(io.Writer) error) error {
	if f.output == "simple" {
		return simple(w)
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(answer)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil { // protojson inserts blanks at random
		return err
	}
	_, err = fmt.Fprintln(w, line.String())
	return err
}

// printKV writes a key and its value, byte for byte, a line each.
func printKV(w io.Writer, kv *mvccpb.KeyValue) error {
	_, err := fmt.Fprintf(w, "%s\n%s\n", kv.GetKey(), kv.GetValue())
	return err
}

// getter holds the flags of kvnode get.
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

// commandTimeout is etcdctl's default, which is longer than an election.
const commandTimeout = 5 * time.Second

// putter holds the flags of kvnode put and kvnode del.
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
