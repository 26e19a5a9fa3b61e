package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
)

// trust gives the members' clients the certificate of clients.
func (s *secured) trust() {
	s.t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(s.dir, "client.crt"), filepath.Join(s.dir, "client.key"))
	must(s.t, err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.ca.PEM) {
		s.t.Fatal("the authority's certificate cannot be read")
	}
	for _, m := range s.Members() {
		m.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots}
	}
}
