package settings

import "testing"

// Each flag that sets a field of the server is what an operator reads in its place.
func TestFieldsAreSpokenAsFlags(t *testing.T) {
	for text, want := range map[string]string{
		"Node.LeaseDuration 1s must be below ElectionTimeout 1s": "--lease-duration 1s must be below --election-timeout 1s",
		"Node.Name \"a\" is not in Node.Cluster":                 `--name "a" is not in --initial-cluster`,
		"Name and Cluster are words":                             "Name and Cluster are words",
		"PeerTLS.CRLFile needs PeerTLS.TrustedCAFile":            "--peer-crl-file needs --peer-trusted-ca-file",
		"ClientTLS.CRLFile, MinVersion":                          "--client-crl-file, --tls-min-version",
		"Keepalive.MinTime and MaxTxnOps; MaxOpenStreams.":       "--grpc-keepalive-min-time and --max-txn-ops; --max-open-streams.",
	} {
		if got := Spoken(text); got != want {
			t.Errorf("Spoken(%q) = %q, want %q", text, got, want)
		}
	}
	spoken := make(map[string]bool)
	for _, flag := range flagOf {
		spoken[flag] = true
	}
	for _, s := range table {
		if s.honoured() && !spoken[s.name] && s.topic != logging && s.name != featureFlag {
			t.Errorf("--%s has no field of server.Config that is spoken as it", s.name)
		}
	}
}
