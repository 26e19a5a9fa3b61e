package tlsconf

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"
)

// material is the parsed content of the files. It is immutable.
type material struct {
	server, client *tls.Certificate
	// clientRoots may sign certificates of clients. It is nil if none are required.
	clientRoots *x509.CertPool
	// serverRoots may sign certificates of dialled servers. nil means the system's roots.
	serverRoots *x509.CertPool
	authorities []*x509.Certificate // of clientRoots
	revoked     map[string]bool     // by revocationKey
}

// contents are the bytes of all files.
type contents struct {
	cert, key, clientCert, clientKey, ca, memberCA, crl []byte
}

// sum returns a hash of f, to detect changes.
func (f *contents) sum() [sha256.Size]byte {
	h := sha256.New()
	for _, b := range [][]byte{f.cert, f.key, f.clientCert, f.clientKey, f.ca, f.memberCA, f.crl} {
		part := sha256.Sum256(b)
		h.Write(part[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// read reads all files of c.
func (c *Config) read() (*contents, error) {
	f := &contents{}
	var errs []error
	get := func(field, path string) []byte {
		if path == "" {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Field(field), err))
		}
		return b
	}
	f.cert, f.key = get("CertFile", c.CertFile), get("KeyFile", c.KeyFile)
	f.clientCert, f.clientKey = f.cert, f.key
	if c.ClientCertFile != c.CertFile || c.ClientKeyFile != c.KeyFile {
		f.clientCert, f.clientKey = get("ClientCertFile", c.ClientCertFile), get("ClientKeyFile", c.ClientKeyFile)
	}
	f.ca, f.crl = get("TrustedCAFile", c.TrustedCAFile), get("CRLFile", c.CRLFile)
	if c.TrustedCAFile == "" && c.MemberCAFile != "" {
		var err error
		f.memberCA, err = os.ReadFile(c.MemberCAFile)
		errs = append(errs, err)
	}
	return f, errors.Join(errs...)
}

// parse parses the files, and checks that they match each other.
func (c *Config) parse(f *contents) (m *material, err error) {
	m = &material{}
	if m.server, err = c.pair("CertFile", "KeyFile", c.CertFile, f.cert, f.key); err != nil {
		return nil, err
	}
	if m.client, err = c.pair("ClientCertFile", "ClientKeyFile", c.ClientCertFile, f.clientCert, f.clientKey); err != nil {
		return nil, err
	}
	if err := c.parseTrust(f, m); err != nil {
		return nil, err
	}
	return m, c.checkOwn(m)
}

// parseTrust parses the authorities and the revoked certificates.
func (c *Config) parseTrust(f *contents, m *material) (err error) {
	if c.TrustedCAFile == "" {
		if c.MemberCAFile != "" {
			if m.serverRoots, _, err = pool(f.memberCA); err != nil {
				return fmt.Errorf("%s: %w", c.MemberCAFile, err)
			}
		}
		return nil
	}
	roots, authorities, err := pool(f.ca)
	if err != nil {
		return fmt.Errorf("%s %s: %w", c.Field("TrustedCAFile"), c.TrustedCAFile, err)
	}
	m.clientRoots, m.serverRoots, m.authorities = roots, roots, authorities
	if m.revoked, err = revocations(f.crl, authorities); err != nil {
		return fmt.Errorf("%s %s: %w", c.Field("CRLFile"), c.CRLFile, err)
	}
	return nil
}

// pair parses a certificate and its key, and checks that it is valid now.
func (c *Config) pair(certField, keyField, path string, cert, key []byte) (*tls.Certificate, error) {
	p, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s %s with %s: %w", c.Field(certField), path, c.Field(keyField), err)
	}
	switch now := time.Now(); {
	case now.After(p.Leaf.NotAfter):
		return nil, fmt.Errorf("%s %s: the certificate has expired at %v", c.Field(certField), path, p.Leaf.NotAfter)
	case now.Before(p.Leaf.NotBefore):
		return nil, fmt.Errorf("%s %s: the certificate is not valid before %v", c.Field(certField), path, p.Leaf.NotBefore)
	}
	return &p, nil
}

// checkOwn checks that other members with the same authorities would accept this member's certificates. If not, it
// returns an error for the side of peers. For the side of clients it only warns, because the member works, but cannot
// forward requests to the leader.
func (c *Config) checkOwn(m *material) error {
	if c.Auto {
		return nil
	}
	err := c.acceptable(m)
	if err != nil && !c.Peers {
		c.Logger.Warn("in a cluster of several members, followers cannot forward requests to the leader", "error", err)
		err = nil
	}
	return err
}

// acceptable returns the error with which another member would reject a certificate of this one.
func (c *Config) acceptable(m *material) error {
	for _, own := range []struct {
		field, role string
		cert        *tls.Certificate
		usage       x509.ExtKeyUsage
	}{
		{"CertFile", "a server", m.server, x509.ExtKeyUsageServerAuth},
		{"ClientCertFile", "a client", m.client, x509.ExtKeyUsageClientAuth},
	} {
		if own.usage == x509.ExtKeyUsageClientAuth && m.clientRoots == nil {
			continue // no server requires it
		}
		intermediates := x509.NewCertPool()
		for _, der := range own.cert.Certificate[1:] {
			if x, err := x509.ParseCertificate(der); err == nil {
				intermediates.AddCert(x)
			}
		}
		opts := x509.VerifyOptions{Roots: m.serverRoots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{own.usage}}
		if _, err := own.cert.Leaf.Verify(opts); err != nil {
			return fmt.Errorf("other members would not accept the certificate of %s as that of %s: %w", c.Field(own.field), own.role, err)
		}
	}
	return nil
}

// pool returns the certificates in a PEM file, as a pool and as a list.
func pool(file []byte) (p *x509.CertPool, all []*x509.Certificate, err error) {
	p = x509.NewCertPool()
	for {
		var block *pem.Block
		if block, file = pem.Decode(file); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, nil, fmt.Errorf("the file has a %s, want certificates only", block.Type)
		}
		x, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, err
		}
		p.AddCert(x)
		all = append(all, x)
	}
	if len(all) == 0 {
		return nil, nil, errors.New("the file has no certificate in PEM form")
	}
	return p, all, nil
}

// revocations parses a list of revocations, PEM or DER, that one of the authorities
// must have signed.
func revocations(file []byte, authorities []*x509.Certificate) (map[string]bool, error) {
	revoked := make(map[string]bool)
	if len(file) == 0 {
		return revoked, nil
	}
	if block, _ := pem.Decode(file); block != nil {
		file = block.Bytes
	}
	list, err := x509.ParseRevocationList(file)
	if err != nil {
		return nil, err
	}
	if !signed(list, authorities) {
		return nil, errors.New("none of the trusted authorities has signed the list")
	}
	for _, entry := range list.RevokedCertificateEntries {
		revoked[revocationKey(list.RawIssuer, entry.SerialNumber)] = true
	}
	return revoked, nil
}

func signed(list *x509.RevocationList, authorities []*x509.Certificate) bool {
	for _, a := range authorities {
		if list.CheckSignatureFrom(a) == nil {
			return true
		}
	}
	return false
}

// revocationKey identifies a certificate. Serial numbers are unique per issuer.
func revocationKey(issuer []byte, serial *big.Int) string {
	return fmt.Sprintf("%x %x", issuer, serial)
}

// checkRevoked refuses a chain with a revoked certificate.
func (m *material) checkRevoked(chain []*x509.Certificate) error {
	for _, x := range chain {
		if m.revoked[revocationKey(x.RawIssuer, x.SerialNumber)] {
			return fmt.Errorf("certificate %x of %q was revoked", x.SerialNumber, x.Subject)
		}
	}
	return nil
}
