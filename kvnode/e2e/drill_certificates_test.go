package e2e

import "testing"

// drillCertificates has the page's authority sign for a cluster, and then another one for the same.
func drillCertificates(t *testing.T, m *machines) {
	if _, err := m.sh("openssl version\n"); err != nil {
		t.Fatalf("the page's commands need openssl: %v", err)
	}
	m.issue("first")
	m.perform("certificates-use")
	m.urls("https")
	m.found()
	m.perform("certificates-try")
	if out, err := m.sh("curl -sS --cacert \"$TLS/ca.crt\" \"$M1/readyz\"\n"); err == nil {
		t.Errorf("a client without a certificate is answered %s", out)
	}
	out, err := m.sh("page \"$M1/metrics\"\n")
	names := metricsIn(string(read(t, procedures)), true)
	if none := nowhere(names, out); err != nil || len(names) == 0 || len(none) > 0 {
		t.Errorf("%s names %q; members with certificates lack %q, %v", procedures, names, none, err)
	}
	m.issue("second")
	m.perform("certificates")
	if out, err := m.sh("ETCDCTL_CACERT=../first/ca.crt page \"$M1/readyz\"\n"); err == nil {
		t.Errorf("a client that trusts the former authority alone is answered %s", out)
	}
}

// issue makes an authority, and certificates that it has signed, in a directory of its own.
func (m *machines) issue(dir string) {
	m.t.Helper()
	m.set("NEW", m.path(dir))
	m.perform("certificates-make")
}
