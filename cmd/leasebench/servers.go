package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/bench"
	"github.com/leaderlease/go/internal/testcluster"
)

// kvnodeName is the server whose read modes leasebench knows.
const kvnodeName = "kvnode"

// ownMember is this binary as a kvnode server.
func ownMember() (testcluster.Program, error) {
	self, err := os.Executable()
	if err != nil {
		return testcluster.Program{}, fmt.Errorf("find this program: %w", err)
	}
	return testcluster.Program{Name: kvnodeName, Path: self, Args: []string{memberCommand}}, nil
}

// parsePeer takes NAME=ENDPOINT,ENDPOINT.
func parsePeer(s string) (bench.Server, error) {
	name, endpoints, err := cutName("peer", s, "NAME=HOST:PORT,HOST:PORT")
	for i, e := range endpoints {
		endpoints[i] = strings.TrimPrefix(e, "http://")
	}
	return bench.Server{Name: name, Endpoints: endpoints}, err
}

// parseStart takes NAME=BINARY,ARG.
func parseStart(s string) (bench.Server, error) {
	name, parts, err := cutName("program", s, "NAME=BINARY,ARGUMENT")
	if err != nil {
		return bench.Server{}, err
	}
	return bench.Server{Name: name, Program: &testcluster.Program{Name: name, Path: parts[0], Args: parts[1:]}}, nil
}

func cutName(what, s, form string) (name string, parts []string, err error) {
	name, list, ok := strings.Cut(s, "=")
	if !ok || name == "" || list == "" || strings.ContainsAny(name, "/ ") {
		return "", nil, fmt.Errorf("%s %q must be %s", what, s, form)
	}
	return name, strings.Split(list, ","), nil
}

// serverFlags say which servers are measured.
type serverFlags struct{ peers, starts []string }

func (f *serverFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.peers, "peer", nil, "a running `NAME=ENDPOINTS`, all members of it; repeat for more")
	f.registerStart(cmd)
}

// registerStart is for commands that must start servers themselves.
func (f *serverFlags) registerStart(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.starts, "start", nil, "a `NAME=BINARY` that takes etcd's flags and is started as a cluster, of three members unless --members says otherwise; arguments before the flags follow commas; repeat for more")
}

// servers returns the servers of the flags. With own, the first is kvnode: this binary,
// unless the flags name another one.
func (f *serverFlags) servers(own bool) ([]bench.Server, error) {
	var all []bench.Server
	names := make(map[string]bool)
	for i, p := range slices.Concat(f.peers, f.starts) {
		parse := parsePeer
		if i >= len(f.peers) {
			parse = parseStart
		}
		s, err := parse(p)
		if err != nil {
			return nil, err
		}
		if names[s.Name] {
			return nil, fmt.Errorf("server %q is named twice", s.Name)
		}
		names[s.Name] = true
		all = append(all, s)
	}
	if !own || names[kvnodeName] {
		return all, nil
	}
	program, err := ownMember()
	if err != nil {
		return nil, err
	}
	return append([]bench.Server{{Name: kvnodeName, Program: &program}}, all...), nil
}
