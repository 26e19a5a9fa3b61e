package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// span is the keys that a command was given: one, those from it to before another, or all that
// begin with it.
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

// form is how a command prints what it was answered.
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

// print writes an answer, in short as simple does it.
func (f *form) print(w io.Writer, answer proto.Message, simple func(io.Writer) error) error {
	if f.output == "simple" {
		return simple(w)
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(answer)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil { // protojson sets blanks at random
		return err
	}
	_, err = fmt.Fprintln(w, line.String())
	return err
}

// printKV writes a key and its value, byte for byte, a line each.
func printKV(w io.Writer, kv *pb.KeyValue) error {
	_, err := fmt.Fprintf(w, "%s\n%s\n", kv.GetKey(), kv.GetValue())
	return err
}
