package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"testing"

	"github.com/leaderlease/go/internal/testcluster"
)

// drillCertificates replaces the authority of a running cluster by another one.
func drillCertificates(t *testing.T, m *machines) {
	m.certify() // settings may be written again
	m.found()
	m.perform("certificates-try")
	if out, err := m.sh("curl -sS --cacert \"$TLS/ca.crt\" \"$M1/readyz\"\n"); err == nil {
		t.Errorf("a client without a certificate is answered %s", out)
	}
	out, err := m.sh("fetch \"$M1/metrics\"\n")
	names := metricsIn(procedureText(t), true)
	if none := nowhere(names, out); err != nil || len(names) == 0 || len(none) > 0 {
		t.Errorf("%s names %q; members with certificates lack %q, %v", procedures, names, none, err)
	}
	m.issue("second")
	m.perform("certificates")
	if out, err := m.sh("ETCDCTL_CACERT=../authority/ca.crt fetch \"$M1/readyz\"\n"); err == nil {
		t.Errorf("a client that trusts the former authority alone is answered %s", out)
	}
}

// certify gives the members certificates, as the page does, and the test's clients the one for clients.
func (m *machines) certify() {
	m.t.Helper()
	if m.plain {
		m.urls("http")
		return
	}
	m.issue("authority")
	m.perform("certificates-use")
	cfg := clientTLS(m.t, m.path("tls"))
	for _, one := range m.Members() {
		one.TLS = cfg
	}
}

// issue makes an authority, and certificates that it signs, in a directory of its own.
func (m *machines) issue(dir string) {
	m.t.Helper()
	m.set("NEW", m.path(dir))
	m.perform("certificates-make")
}

// clientTLS returns what a client needs that has the certificates in a directory.
func clientTLS(t *testing.T, dir string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, filepath.Join(dir, "ca.crt")))
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

// startEtcd starts the etcd of the page, of one member, with certificates of an authority of its own.
func (m *machines) startEtcd(dir string) *testcluster.Cluster {
	m.t.Helper()
	c := newCluster(m.t, testcluster.Config{Program: program(m.t, etcd), Size: 1, Prefix: dir})
	one := c.Members()[0]
	url := "http://" + one.Endpoint
	if !m.plain {
		m.issue(dir)
		_, err := m.sh("issue m1 subjectAltName=IP:127.0.0.1 extendedKeyUsage=serverAuth,clientAuth\n")
		must(m.t, err)
		one.TLS = clientTLS(m.t, m.path(dir))
		url = "https://" + one.Endpoint
		one.Flags = append(one.Flags, "--listen-client-urls="+url, "--advertise-client-urls="+url, "--client-cert-auth",
			"--trusted-ca-file="+m.path(dir)+"/ca.crt", "--cert-file="+m.path(dir)+"/m1.crt", "--key-file="+m.path(dir)+"/m1.key")
	}
	must(m.t, c.Serve(deadline(m.t)))
	m.set("ETCD", url)
	m.set("ETCD_TLS", m.path(dir))
	return c
}
