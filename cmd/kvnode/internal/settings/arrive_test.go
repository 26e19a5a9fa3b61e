package settings

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode/server"
)

// odd has a value for each setting that is honoured, which is not its default.
var odd = map[string]string{
	"name": "n7", "data-dir": "/d7", "listen-client-urls": "http://127.0.0.1:7001", "listen-client-http-urls": "http://127.0.0.1:7002",
	"listen-peer-urls": "http://127.0.0.1:7003", "advertise-client-urls": "http://127.0.0.1:7004",
	"initial-advertise-peer-urls": "http://127.0.0.1:7005", "initial-cluster": "n7=http://127.0.0.1:7006", "initial-cluster-state": "existing",
	"initial-cluster-token": "token7", "heartbeat-interval": "107", "election-timeout": "1107", "suspect-on-close": "false", "suspect-on-silence": "false", "supervise": "true",
	"strict-reconfig-check": "false",
	"read-mode":             "log", "lease-duration": "807ms", "max-clock-skew": "207ms", "max-drift-ppm": "107", "disable-lease": "true", "lease-trace": "/t7",
	"snapshot-count": "10007", "snapshot-catchup-entries": "5007", "quota-backend-bytes": "-7", "auto-compaction-mode": "revision",
	"auto-compaction-retention": "7", "corrupt-check-time": "7s", "compact-hash-check-time": "7s", "max-request-bytes": "1007",
	"max-txn-ops": "107", "watch-progress-notify-interval": "7s", "max-concurrent-streams": "1007", "max-open-streams": "1007",
	"grpc-keepalive-min-time": "7s", "grpc-keepalive-interval": "0s", "grpc-keepalive-timeout": "7s", "enable-grpc-gateway": "false",
	"cert-file": "/c1", "key-file": "/c2", "trusted-ca-file": "/c3", "client-cert-auth": "true", "client-crl-file": "/c4",
	"client-cert-allowed-hostname": "c5,c6", "client-cert-file": "/c7", "client-key-file": "/c8", "auto-tls": "true",
	"peer-cert-file": "/p1", "peer-key-file": "/p2", "peer-trusted-ca-file": "/p3", "peer-client-cert-auth": "true", "peer-crl-file": "/p4",
	"peer-cert-allowed-cn": "p5,p6", "peer-cert-allowed-hostname": "p7", "peer-client-cert-file": "/p8", "peer-client-key-file": "/p9",
	"peer-auto-tls": "true", "self-signed-cert-validity": "7", "cipher-suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	"tls-min-version": "TLS1.3", "tls-max-version": "TLS1.2", "allow-plaintext": "true", "host-whitelist": "h7,h8",
	"log-level": "warn", "log-format": "text", "log-outputs": "stdout,/l7", "listen-metrics-urls": "http://127.0.0.1:7007", "listen-redis-url": "http://127.0.0.1:7008", "metrics": "extensive",
	"warning-unary-request-duration": "7s", "warning-apply-duration": "17s", "enable-pprof": "true", "lease-page": "false",
	featureFlag: "LeaseCheckpoint=true,InitialCorruptCheck=true,CompactHashCheck=true",
}

// noFlag are the fields without a setting: fields for tests and for programs that embed a
// server, limits with a default that fits all, and values that the server computes.
var noFlag = []string{
	"Server.API.ElectionTimeout", "Server.API.MemberDialOptions", "Server.API.Logger", "Server.API.MaxInFlight", "Server.API.MaxReplyBytes",
	"Server.API.MaxRequestBytes", "Server.API.Metrics", "Server.API.NodeVersion", "Server.API.RequestTimeout", "Server.API.TrailersOnDemand",
	"Server.API.WaitingMethods", "Server.API.WarnRead", "Server.ClientListener", "Server.ClientTLS.AllowedCNs", "Server.ClientTLS.Logger",
	"Server.API.WaitForLeader", "Server.ClientTLS.Peers", "Server.DroppedLogLines", "Server.HTTPListener", "Server.Logger", "Server.Node.Clock", "Server.Node.Dial", "Server.Node.Supervisor", "Server.Node.Listener",
	"Server.Node.KeepTrace", "Server.Node.Logger", "Server.Node.MaxProposalBytes", "Server.Node.MaxProposals", "Server.Node.PeerTLS", "Server.Node.SegmentSize",
	"Server.PeerTLS.MemberCAFile", "Server.PeerTLS.Logger", "Server.PeerTLS.Peers", "Server.Spell",
}

// leaves notes what the fields of v hold.
func leaves(v reflect.Value, prefix string, into map[string]any) {
	for f, field := range v.Fields() {
		switch name := prefix + f.Name; {
		case !f.IsExported():
		case field.Kind() == reflect.Struct:
			leaves(field, name+".", into)
		default:
			into[name] = field.Interface()
		}
	}
}

// effects returns the fields that are not what they are by default.
func effects(l *Loaded) map[string]any {
	defaults, _ := Load(nil, nil)
	had, has := make(map[string]any), make(map[string]any)
	leaves(reflect.ValueOf(defaults.Config), "", had)
	leaves(reflect.ValueOf(l.Config), "", has)
	maps.DeleteFunc(has, func(name string, value any) bool { return reflect.DeepEqual(value, had[name]) })
	return has
}

// parsed tells Load of all flags, through the parser of the command line.
func parsed(t *testing.T, flags map[string]string) *Loaded {
	t.Helper()
	cmd := command(t)
	var args []string
	for name, value := range flags {
		args = append(args, "--"+name+"="+value)
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	l, _ := Load(Flags(cmd.Flags()), nil) // not all of them go together
	return l
}

// Each flag reaches the fields that testdata says, and no field is left out.
func TestFlagsArrive(t *testing.T) {
	var b bytes.Buffer
	reached := make(map[string]bool)
	for i := range table {
		s := &table[i]
		if !s.honoured() {
			continue
		}
		fmt.Fprintf(&b, "--%s %s\n", s.name, odd[s.name])
		l, _ := Load(map[string]string{s.name: odd[s.name]}, nil) // some do not go alone
		alone := effects(l)
		if len(alone) == 0 {
			t.Errorf("--%s %q has no effect", s.name, odd[s.name])
		}
		for _, name := range slices.Sorted(maps.Keys(alone)) {
			fmt.Fprintf(&b, "\t%s %v\n", name, alone[name])
			reached[name] = true
		}
	}
	golden(t, "arrive.txt", b.Bytes())
	all := make(map[string]any)
	leaves(reflect.ValueOf(Config{}), "", all)
	for name := range all {
		if listed := slices.Contains(noFlag, name); listed == reached[name] {
			t.Errorf("%s is reached by a flag: %v, said to be reached by none: %v", name, reached[name], listed)
		}
	}
}

// All settings together have the effects that each has alone, from every source, and keep them when
// the server starts and fills in defaults again.
func TestAllArriveTogether(t *testing.T) {
	l := parsed(t, odd)
	want := effects(l)
	var environ, lines []string
	for name, value := range odd {
		environ = append(environ, byName[name].envs()[0]+"="+value)
		lines = append(lines, fmt.Sprintf("%s: %q", name, value))
		if got := byName[name].field(&l.Config).String(); got != value {
			t.Errorf("--%s is %s, want %s", name, got, value)
		}
	}
	fromEnv, _ := Load(nil, environ)
	fromFile, _ := Load(map[string]string{configFile: file(t, strings.Join(lines, "\n")+"\n")}, nil)
	again := parsed(t, odd)
	again.Server = again.Server.WithDefaults()
	for way, l := range map[string]*Loaded{"the environment": fromEnv, "a file": fromFile, "defaults twice": again} {
		if got := effects(l); !reflect.DeepEqual(got, want) {
			t.Errorf("by %s:\n%v\nwant\n%v", way, got, want)
		}
	}
	once, twice := make(map[string]any), make(map[string]any)
	leaves(reflect.ValueOf(server.Default()), "", once)
	leaves(reflect.ValueOf(server.Default().WithDefaults()), "", twice)
	if !reflect.DeepEqual(once, twice) {
		t.Errorf("WithDefaults twice:\n%v\nwant\n%v", twice, once)
	}
}
