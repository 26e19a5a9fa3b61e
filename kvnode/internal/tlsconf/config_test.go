package tlsconf

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestValidate(t *testing.T) {
	whole := Config{CertFile: "c", KeyFile: "k"}
	for _, test := range []struct {
		name string
		set  func(*Config)
		want string // part of the error, nothing if it is valid
	}{
		{"a certificate", func(*Config) {}, ""},
		{"nothing", func(c *Config) { *c = Config{} }, ""},
		{"no key", func(c *Config) { c.KeyFile = "" }, `ClientTLS.CertFile "c" and ClientTLS.KeyFile "" go together`},
		{"no certificate", func(c *Config) { c.CertFile = "" }, `ClientTLS.CertFile "" and ClientTLS.KeyFile "k" go together`},
		{"half a client's", func(c *Config) { c.ClientCertFile = "x" }, "ClientTLS.ClientCertFile"},
		{"automatic", func(c *Config) { *c = Config{Auto: true} }, ""},
		{"automatic and given", func(c *Config) { c.Auto = true }, "ClientTLS.Auto makes a certificate"},
		{"an authority", func(c *Config) { c.TrustedCAFile = "a" }, ""},
		{"authentication without authority", func(c *Config) { c.ClientCertAuth = true }, "ClientTLS.ClientCertAuth needs ClientTLS.TrustedCAFile"},
		{"revocation without authority", func(c *Config) { c.CRLFile = "r" }, "ClientTLS.CRLFile needs ClientTLS.TrustedCAFile"},
		{"names without authority", func(c *Config) { c.AllowedHostnames = []string{"h"} }, "ClientTLS.AllowedHostnames needs ClientTLS.TrustedCAFile"},
		{"two kinds of names", func(c *Config) {
			c.TrustedCAFile, c.AllowedHostnames, c.AllowedCNs = "a", []string{"h"}, []string{"n"}
		}, "cannot both be given"},
		{"an authority without TLS", func(c *Config) { *c = Config{TrustedCAFile: "a"} }, "ClientTLS.TrustedCAFile has no effect without TLS"},
		{"authentication without TLS", func(c *Config) { *c = Config{ClientCertAuth: true} }, "ClientTLS.ClientCertAuth has no effect without TLS"},
		{"peers without authority", func(c *Config) { c.Peers = true }, "PeerTLS.CertFile needs PeerTLS.TrustedCAFile"},
		{"peers' automatic", func(c *Config) { *c = Config{Peers: true, Auto: true} }, ""},
		{"peers' names", func(c *Config) { c.Peers, c.AllowedCNs = true, []string{"n"} }, "PeerTLS.AllowedCNs needs PeerTLS.TrustedCAFile"},
		{"peers' revocation", func(c *Config) { c.Peers, c.CRLFile = true, "r" }, "PeerTLS.CRLFile needs"},
		{"an old version", func(c *Config) { c.MinVersion = "TLS1.1" }, `MinVersion "TLS1.1" must be TLS1.2 or TLS1.3`},
		{"an unknown version", func(c *Config) { c.MaxVersion = "TLS1.4" }, `MaxVersion "TLS1.4"`},
		{"versions crossed", func(c *Config) { c.MinVersion, c.MaxVersion = "TLS1.3", "TLS1.2" }, "is below MinVersion"},
		{"a suite", func(c *Config) { c.CipherSuites = []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"} }, ""},
		{"suites by their old names", func(c *Config) {
			c.CipherSuites = []string{"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"}
		}, ""},
		{"an old name of nothing", func(c *Config) { c.CipherSuites = []string{"TLS_RSA_WITH_CHACHA20_POLY1305"} }, "must be some of TLS_ECDHE"},
		{"a weak suite", func(c *Config) { c.CipherSuites = []string{"TLS_RSA_WITH_RC4_128_SHA"} }, "is not offered, because it is insecure"},
		{"a suite of TLS 1.3", func(c *Config) { c.CipherSuites = []string{"TLS_AES_128_GCM_SHA256"} }, "must be some of TLS_ECDHE"},
		{"suites where there is no choice", func(c *Config) {
			c.MinVersion, c.CipherSuites = "TLS1.3", []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}
		}, "has no effect with MinVersion TLS1.3"},
		{"years", func(c *Config) { c.AutoYears = 101 }, "AutoYears 101 must be from 1 to 100"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := whole
			test.set(&c)
			err := errors.Join(c.Validate(), c.ValidateShared())
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("Validate() = %v, want %q", err, test.want)
			}
		})
	}
}

// New returns nil without TLS.
func TestNoTLS(t *testing.T) {
	if s, err := New(Config{}); s != nil || err != nil {
		t.Errorf("New(nothing) = %v, %v, want nothing", s, err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
