package tlsconf

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// AutoFolder is the folder of a data directory with AutoDir, as in etcd.
const AutoFolder = "fixtures"

// keepIn sets the names of the self-signed certificate's files.
func (c *Config) keepIn(dir string) {
	c.CertFile, c.KeyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if c.ClientCertFile == "" {
		c.ClientCertFile, c.ClientKeyFile = c.CertFile, c.KeyFile
	}
}

// selfSign makes a certificate unless there is a valid one. It may replace a damaged one, because no authority has
// signed it.
func (c *Config) selfSign() error {
	if c.hasOwn() {
		return nil
	}
	cert, key, err := c.makeOwn()
	if err != nil {
		return fmt.Errorf("%s: make a certificate: %w", c.Field("Auto"), err)
	}
	if err := os.MkdirAll(filepath.Dir(c.CertFile), 0o700); err != nil {
		return fmt.Errorf("%s: %w", c.Field("Auto"), err)
	}
	// After a crash between the two writes the files do not match, and the next start
	// replaces both.
	if err := replace(c.KeyFile, key); err != nil {
		return fmt.Errorf("%s: %w", c.Field("Auto"), err)
	}
	if err := replace(c.CertFile, cert); err != nil {
		return fmt.Errorf("%s: %w", c.Field("Auto"), err)
	}
	c.Logger.Info("a self-signed certificate was made", "file", c.CertFile, "hosts", c.AutoHosts, "years", c.AutoYears)
	return nil
}

// hasOwn reports whether the certificate exists, is valid for AutoHosts, and has more
// than a tenth of its time left.
func (c *Config) hasOwn() bool {
	p, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return false
	}
	all := p.Leaf.NotAfter.Sub(p.Leaf.NotBefore)
	unnamed := func(host string) bool { return p.Leaf.VerifyHostname(host) != nil }
	return time.Until(p.Leaf.NotAfter) > all/10 && !slices.ContainsFunc(c.AutoHosts, unnamed)
}

func (c *Config) makeOwn() (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:   pkix.Name{Organization: []string{"kvnode"}},
		NotBefore: now.Add(-time.Minute), NotAfter: now.AddDate(c.AutoYears, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	for _, host := range c.AutoHosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	return certPEM, keyPEM, nil
}

// replace writes data to a new file and renames that to path.
func replace(path string, data []byte) error {
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
