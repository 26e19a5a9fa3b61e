// Package tlstest makes valid and invalid certificates for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is the authority's certificate.
	PEM []byte
}

// New returns an authority. In a synctest bubble it uses the bubble's time.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	check(t, err)
	a.cert, err = x509.ParseCertificate(der)
	check(t, err)
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// Pair is a certificate with its key.
type Pair struct {
	t         testing.TB
	Cert, Key []byte // PEM
	Serial    *big.Int
}

// Issue signs a certificate for the hosts. It is valid for a day, for servers and
// clients. Functions in change can change that.
func (a *Authority) Issue(hosts []string, change ...func(*x509.Certificate)) Pair {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "tlstest"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	for _, f := range change {
		f(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	check(a.t, err)
	x, err := x509.ParseCertificate(der)
	check(a.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	check(a.t, err)
	return Pair{
		t: a.t, Serial: x.SerialNumber,
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
}

// Expired makes a certificate that expired an hour ago.
func Expired(x *x509.Certificate) {
	x.NotBefore, x.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
}

// For makes a certificate with a common name.
func For(cn string) func(*x509.Certificate) {
	return func(x *x509.Certificate) { x.Subject.CommonName = cn }
}

// Only makes a certificate valid for one usage.
func Only(usage x509.ExtKeyUsage) func(*x509.Certificate) {
	return func(x *x509.Certificate) { x.ExtKeyUsage = []x509.ExtKeyUsage{usage} }
}

// Revoke returns a list of revocations, PEM.
func (a *Authority) Revoke(serials ...*big.Int) []byte {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, s := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: s, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	check(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// Write writes the pair into dir and returns the paths.
func (p Pair) Write(dir, name string) (cert, key string) {
	p.t.Helper()
	return Write(p.t, dir, name+".crt", p.Cert), Write(p.t, dir, name+".key", p.Key)
}

// Write writes a file into dir and returns its path.
func Write(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	check(t, os.WriteFile(path, data, 0o600))
	return path
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
