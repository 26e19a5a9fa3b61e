package tlsconf

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
)

// revocations returns what a list of revocations, PEM or DER, says. It must be
// signed by one of the authorities.
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

// revocationKey names a certificate: serial numbers are unique for each issuer.
func revocationKey(issuer []byte, serial *big.Int) string {
	return fmt.Sprintf("%x %x", issuer, serial)
}

// checkRevoked refuses a chain in which something was revoked.
func (m *material) checkRevoked(chain []*x509.Certificate) error {
	for _, x := range chain {
		if m.revoked[revocationKey(x.RawIssuer, x.SerialNumber)] {
			return fmt.Errorf("certificate %x of %q was revoked", x.SerialNumber, x.Subject)
		}
	}
	return nil
}
