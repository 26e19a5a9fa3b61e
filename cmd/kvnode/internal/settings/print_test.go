package settings

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has changed (go test -args -rewrite, then read the diff):\ngot:\n%s", path, got)
	}
}

func printed(t *testing.T, l *Loaded) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := l.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPrint(t *testing.T) {
	l, err := Load(map[string]string{
		"name": "a", "initial-cluster": "a=http://10.0.0.1:2380,b=http://10.0.0.2:2380", "enable-pprof": "1",
		"listen-peer-urls": "http://10.0.0.1:2380", "allow-plaintext": "true", "grpc-keepalive-interval": "0",
	}, []string{"KVNODE_READ_MODE=log", "ETCD_MAX_TXN_OPS=512", "ETCD_INITIAL_CLUSTER_STATE=existing"})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "print-config.yaml", printed(t, l))
}

// A lease setting of zero is printed with the value that the member derives from the others.
func TestPrintShowsDerivedValues(t *testing.T) {
	l, err := Load(map[string]string{"heartbeat-interval": "100", "lease-duration": "600ms"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := string(printed(t, l))
	for _, want := range []string{
		"\nlease-duration: 600ms # flag --lease-duration\n",
		"\nmax-clock-skew: 0s # default, in effect: 120ms\n",
		"\nmax-drift-ppm: 0 # default, in effect: 83333\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("Print() = %s, want in it %q", got, want)
		}
	}
}

// The output of --print-config is a configuration file with the same meaning.
func TestPrintedIsReadBack(t *testing.T) {
	for name, flags := range map[string]map[string]string{
		"default": nil,
		"odd": {
			"name": "true", "initial-cluster-token": "# not: a comment", "data-dir": "12", "max-drift-ppm": "50", "lease-duration": "400ms",
			"log-outputs": "stderr,/tmp/a b.log", "metrics": "extensive", "enable-grpc-gateway": "false", "quota-backend-bytes": "-1",
			"grpc-keepalive-interval": "0s", "feature-gates": "LeaseCheckpoint=true", "disable-lease": "true",
		},
	} {
		first, err := Load(flags, nil)
		if err != nil {
			t.Fatal(err)
		}
		path := file(t, string(printed(t, first)))
		second, err := Load(map[string]string{configFile: path}, nil)
		if err != nil {
			t.Fatalf("%s: Load of what was printed: %v", name, err)
		}
		for i := range table {
			s := &table[i]
			if !s.honoured() {
				continue
			}
			if got, want := s.field(&second.Config).String(), s.field(&first.Config).String(); got != want {
				t.Errorf("%s: --%s read back = %q, want %q", name, s.name, got, want)
			}
		}
	}
}

func command(t *testing.T) *cobra.Command {
	t.Helper()
	cmd := &cobra.Command{Use: "serve"}
	if err := AddFlags(cmd); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestHelp(t *testing.T) {
	var b bytes.Buffer
	if err := Help(&b, command(t).Flags()); err != nil {
		t.Fatal(err)
	}
	golden(t, "help.txt", b.Bytes())
	for line := range strings.Lines(b.String()) {
		if len(line) > helpWidth+1 {
			t.Errorf("help has a line of %d bytes, want %d at most: %s", len(line)-1, helpWidth, line)
		}
	}
}

// Only flags that were given count: a default must not override a file.
func TestFlagsThatWereGiven(t *testing.T) {
	cmd := command(t)
	cmd.Flags().Bool("unrelated", false, "")
	if err := cmd.ParseFlags([]string{"--name", "a", "--enable-pprof", "--unrelated", "--auto-tls", "--config-file=f"}); err != nil {
		t.Fatal(err)
	}
	got := Flags(cmd.Flags())
	if len(got) != 4 || got["name"] != "a" || got["enable-pprof"] != "true" || got["auto-tls"] != "true" || got[configFile] != "f" {
		t.Errorf("Flags() = %v, want name, enable-pprof, auto-tls and config-file", got)
	}
}
