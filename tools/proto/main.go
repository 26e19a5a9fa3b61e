// Command proto generates the Go code of the .proto files that this repository
// has taken from etcd: messages, gRPC stubs and the JSON gateway, beside each
// file. It runs in its own directory, as make generate does, and needs nothing
// but Go: the compiler and the plugins are modules.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	_ "go.etcd.io/etcd/api/v3/etcdserverpb" // links what the files import of others
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const (
	root   = "../.."
	module = "github.com/leaderlease/go/"
	// etcdAPI is how etcd's files import those of its module api.
	etcdAPI = "etcd/api/"
)

// files are generated, each into its own directory.
var files = []string{
	"kvnode/server/internal/etcdapi/concurrency/v3lockpb/v3lock.proto",
	"kvnode/server/internal/etcdapi/concurrency/v3electionpb/v3election.proto",
}

// plugins are tools of this module.
var plugins = []string{"protoc-gen-go", "protoc-gen-go-grpc", "protoc-gen-grpc-gateway"}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "proto:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	for _, file := range files {
		request, err := compile(ctx, file)
		if err != nil {
			return fmt.Errorf("compile %s: %w", file, err)
		}
		for _, p := range plugins {
			if err := generate(ctx, p, request); err != nil {
				return fmt.Errorf("%s of %s: %w", p, file, err)
			}
		}
	}
	return nil
}

// compile returns what a plugin is asked for file. The package that the file
// itself names is that of etcd's server.
func compile(ctx context.Context, file string) (*pluginpb.CodeGeneratorRequest, error) {
	api, err := moduleDir(ctx, "go.etcd.io/etcd/api/v3")
	if err != nil {
		return nil, err
	}
	c := protocompile.Compiler{
		Resolver: protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{root}},
			&protocompile.SourceResolver{Accessor: etcdFiles(api)},
			protocompile.ResolverFunc(linked),
		},
		SourceInfoMode: protocompile.SourceInfoStandard, // for comments
	}
	compiled, err := c.Compile(ctx, file)
	if err != nil {
		return nil, err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      new("paths=source_relative,M" + file + "=" + module + filepath.Dir(file)),
	}
	request.ProtoFile = withImports(compiled[0], map[string]bool{})
	return request, nil
}

// withImports returns a file after all that it imports, as plugins want it.
func withImports(f protoreflect.FileDescriptor, seen map[string]bool) (all []*descriptorpb.FileDescriptorProto) {
	if seen[f.Path()] {
		return nil
	}
	seen[f.Path()] = true
	for i := range f.Imports().Len() {
		all = append(all, withImports(f.Imports().Get(i).FileDescriptor, seen)...)
	}
	return append(all, protoutil.ProtoFromFileDescriptor(f))
}

// moduleDir returns where the sources of a module are, in the version that the
// repository uses.
func moduleDir(ctx context.Context, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// etcdFiles opens the files of etcd's module api, which lies in dir.
func etcdFiles(dir string) func(string) (io.ReadCloser, error) {
	return func(path string) (io.ReadCloser, error) {
		if rest, ok := strings.CutPrefix(path, etcdAPI); ok {
			return os.Open(filepath.Join(dir, rest))
		}
		return nil, fs.ErrNotExist
	}
}

// linked finds what Google's and the gateway's packages have registered.
func linked(path string) (protocompile.SearchResult, error) {
	f, err := protoregistry.GlobalFiles.FindFileByPath(path)
	return protocompile.SearchResult{Desc: f}, err
}

// generate runs a plugin and writes the files that it answers with.
func generate(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, f := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(root, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
