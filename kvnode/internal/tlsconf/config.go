// Package tlsconf makes TLS configurations from files that may change while the
// process runs. A member has one for its clients and one for its peers.
//
// # What it promises
//
//   - New connections use a changed file within a second, without a restart.
//     Existing connections continue.
//   - If the changed files are invalid, the previous ones stay in use. A line is
//     logged, and Stats counts the failure.
//   - TLS below 1.2 and cipher suites that Go calls insecure are never used.
//     Sessions are not resumed, so that an old session cannot bypass a new
//     authority.
//   - With Config.TrustedCAFile a client must have a certificate that this
//     authority has signed, that is not revoked, and that has an allowed name.
//   - With Config.Peers, the certificate of a connecting peer must have the usages
//     serverAuth and clientAuth, unless Config.ClientCertFile is set.
//
// Package admission decides to which member a certificate belongs.
package tlsconf

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/leaderlease/go/internal/problems"
)

// Config is the TLS configuration of one side: clients or peers. The zero value
// means no TLS.
type Config struct {
	// Peers is set for the side of peers. Both ends of a connection between members
	// check each other's certificate.
	Peers bool

	// CertFile and KeyFile are PEM files with this member's certificate as a server.
	CertFile, KeyFile string
	// ClientCertFile and ClientKeyFile are PEM files with this member's certificate as a client. Default: CertFile
	// and KeyFile, which then need the usage clientAuth.
	ClientCertFile, ClientKeyFile string
	// TrustedCAFile has the authorities that may sign certificates of clients and
	// peers. If it is set, each connection needs a certificate.
	TrustedCAFile string
	// ClientCertAuth requires certificates, and needs TrustedCAFile. TrustedCAFile
	// alone means the same, as in etcd.
	ClientCertAuth bool
	// CRLFile lists revoked certificates of these authorities.
	CRLFile string
	// MemberCAFile has the authorities that sign other members' certificates if
	// TrustedCAFile is not set. Default: those of the system.
	MemberCAFile string
	// AllowedCNs restricts accepted certificates to those with one of these common names, AllowedHostnames to those
	// that are valid for one of these host names. At most one of the two may be set, as in etcd.
	AllowedCNs, AllowedHostnames []string

	// Auto makes a self-signed certificate for AutoHosts in AutoDir. It is valid for
	// AutoYears (default: 1), and replaced in the last tenth of that time.
	Auto      bool
	AutoDir   string
	AutoHosts []string
	AutoYears int

	// CipherSuites has names of crypto/tls, for TLS 1.2 only. Default: Go's.
	CipherSuites []string
	// MinVersion and MaxVersion are TLS1.2 or TLS1.3. Default: TLS1.2, and the
	// newest.
	MinVersion, MaxVersion string

	// Logger gets a line for each reload. Default: nothing is logged.
	Logger *slog.Logger
}

// Enabled reports whether c has a certificate, which TLS needs.
func (c *Config) Enabled() bool { return c.CertFile != "" || c.KeyFile != "" || c.Auto }

// RequiresCert reports whether clients of this side need a certificate.
func (c *Config) RequiresCert() bool { return c.TrustedCAFile != "" || c.ClientCertAuth }

// Field returns the name of a field with its side, for errors.
func (c *Config) Field(name string) string {
	if c.Peers {
		return "PeerTLS." + name
	}
	return "ClientTLS." + name
}

// WithDefaults returns a copy of c with every unset optional field filled in.
func (c Config) WithDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Auto {
		c.MemberCAFile = "" // other members' certificates are self-signed
	}
	if c.AutoYears == 0 {
		c.AutoYears = 1
	}
	if c.ClientCertFile == "" && c.ClientKeyFile == "" {
		c.ClientCertFile, c.ClientKeyFile = c.CertFile, c.KeyFile
	}
	return c
}

// maxAutoYears keeps the dates of a certificate within the range of X.509.
const maxAutoYears = 100

// Validate reports all errors of c, without those of ValidateShared. It reads no
// file.
func (c *Config) Validate() error {
	return errors.Join(slices.Concat(c.checkPairs(), c.checkTrust())...)
}

// ValidateShared reports the errors of the settings that both sides share.
func (c *Config) ValidateShared() error {
	_, err := c.versions()
	if c.AutoYears < 0 || c.AutoYears > maxAutoYears {
		err = errors.Join(err, fmt.Errorf("AutoYears %d must be from 1 to %d years", c.AutoYears, maxAutoYears))
	}
	return err
}

// checkPairs checks that certificates and keys come together.
func (c *Config) checkPairs() (bad problems.List) {
	bad.If((c.CertFile == "") != (c.KeyFile == ""),
		"%s %q and %s %q go together, and one is missing", c.Field("CertFile"), c.CertFile, c.Field("KeyFile"), c.KeyFile)
	bad.If((c.ClientCertFile == "") != (c.ClientKeyFile == ""), "%s %q and %s %q go together, and one is missing",
		c.Field("ClientCertFile"), c.ClientCertFile, c.Field("ClientKeyFile"), c.ClientKeyFile)
	bad.If(c.Auto && (c.CertFile != "" || c.KeyFile != ""),
		"%s makes a certificate, and %s %q names one; give one of the two", c.Field("Auto"), c.Field("CertFile"), c.CertFile)
	if !c.Enabled() {
		bad = append(bad, c.checkUnused()...)
	}
	return bad
}

// checkUnused refuses settings that have no effect without a certificate, because
// the operator expects an effect.
func (c *Config) checkUnused() (bad problems.List) {
	for _, setting := range []struct {
		name string
		set  bool
	}{
		{"TrustedCAFile", c.TrustedCAFile != ""},
		{"ClientCertAuth", c.ClientCertAuth},
		{"ClientCertFile", c.ClientCertFile != ""},
		{"CRLFile", c.CRLFile != ""},
		{"AllowedCNs", len(c.AllowedCNs) > 0},
		{"AllowedHostnames", len(c.AllowedHostnames) > 0},
	} {
		bad.If(setting.set, "%s has no effect without TLS: give %s and %s, or %s",
			c.Field(setting.name), c.Field("CertFile"), c.Field("KeyFile"), c.Field("Auto"))
	}
	return bad
}

// checkTrust checks the settings about certificates of clients and peers.
func (c *Config) checkTrust() (bad problems.List) {
	need := func(name string, set bool, why string) {
		bad.If(set && c.TrustedCAFile == "" && c.Enabled(), "%s needs %s: %s", c.Field(name), c.Field("TrustedCAFile"), why)
	}
	need("ClientCertAuth", c.ClientCertAuth, "else certificates of all public authorities would be accepted")
	need("CRLFile", c.CRLFile != "", "one of its authorities must have signed the list")
	need("AllowedCNs", len(c.AllowedCNs) > 0, "an authority must have signed the name")
	need("AllowedHostnames", len(c.AllowedHostnames) > 0, "an authority must have signed the name")
	need("CertFile", c.Peers && !c.Auto, "members authenticate each other by certificates")
	bad.If(len(c.AllowedCNs) > 0 && len(c.AllowedHostnames) > 0,
		"%s and %s cannot both be given", c.Field("AllowedCNs"), c.Field("AllowedHostnames"))
	return bad
}

// versions has the parsed versions and cipher suites of a Config.
type versions struct {
	low, high uint16 // high is 0 for the newest
	suites    []uint16
}

var versionNames = map[string]uint16{"TLS1.2": tls.VersionTLS12, "TLS1.3": tls.VersionTLS13}

func (c *Config) versions() (v versions, err error) {
	v.low = tls.VersionTLS12
	if c.MinVersion != "" {
		if v.low = versionNames[c.MinVersion]; v.low == 0 {
			return v, fmt.Errorf("MinVersion %q must be TLS1.2 or TLS1.3", c.MinVersion)
		}
	}
	if c.MaxVersion != "" {
		if v.high = versionNames[c.MaxVersion]; v.high == 0 {
			return v, fmt.Errorf("MaxVersion %q must be TLS1.2 or TLS1.3", c.MaxVersion)
		}
		if v.high < v.low {
			return v, fmt.Errorf("MaxVersion %s is below MinVersion %s", c.MaxVersion, c.MinVersion)
		}
	}
	if len(c.CipherSuites) > 0 && v.low == tls.VersionTLS13 {
		return v, fmt.Errorf("CipherSuites has no effect with MinVersion TLS1.3: its suites cannot be chosen")
	}
	for _, name := range c.CipherSuites {
		id, err := suite(name)
		if err != nil {
			return v, err
		}
		v.suites = append(v.suites, id)
	}
	return v, nil
}

// suite returns the cipher suite with that name, unless it is insecure.
func suite(name string) (uint16, error) {
	if strings.HasSuffix(name, "_CHACHA20_POLY1305") {
		name += "_SHA256" // the short name is etcd's, and that of Go before 1.14
	}
	var known []string
	for _, s := range tls.CipherSuites() {
		if s.Name == name && slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			return s.ID, nil
		}
		if slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			known = append(known, s.Name)
		}
	}
	for _, s := range tls.InsecureCipherSuites() {
		if s.Name == name {
			return 0, fmt.Errorf("CipherSuites %s is not offered, because it is insecure", name)
		}
	}
	return 0, fmt.Errorf("CipherSuites %q must be some of %s", name, strings.Join(known, ", "))
}
