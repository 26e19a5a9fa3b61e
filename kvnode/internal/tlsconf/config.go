// Package tlsconf makes TLS configurations out of files that may change while
// the process runs, for the two sides of a member: its clients and its peers.
//
// # What it promises
//
//   - Each handshake uses the newest files: within a second of a change new
//     connections see it, without a restart. Connections that exist go on.
//   - Files that do not make sense change nothing: what was loaded last stays in
//     use, a line is logged and Stats counts it.
//   - Nothing below TLS 1.2, and no cipher suite that Go calls insecure, is ever
//     spoken. Sessions are not resumed, so that no client is let in by what an
//     older authority said.
//   - With Config.TrustedCAFile whoever connects must show a certificate that
//     this authority has signed, that is not revoked, and whose names are
//     allowed. There is no way in without one.
//   - With Config.Peers, a peer that connects needs a certificate that is good for
//     servers and clients, unless Config.ClientCertFile gives members one of each.
//
// Which member a certificate is for is decided by package admission.
package tlsconf

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// Config says where the certificates of one side are. The zero value means no
// TLS.
type Config struct {
	// Peers is the side of other members, as opposed to that of clients. Both ends
	// of a connection between members are checked alike.
	Peers bool

	// CertFile and KeyFile are the certificate for those who connect, PEM.
	CertFile, KeyFile string
	// ClientCertFile and ClientKeyFile are shown when this member connects.
	// Default: CertFile and KeyFile, which then must be good for clients as well.
	ClientCertFile, ClientKeyFile string
	// TrustedCAFile has the authorities that may sign the certificates of others.
	// If it is given, everybody who connects needs a certificate.
	TrustedCAFile string
	// ClientCertAuth asks for certificates of those who connect, for which
	// TrustedCAFile is needed. TrustedCAFile alone means the same, as in etcd.
	ClientCertAuth bool
	// CRLFile lists certificates that were revoked by one of these authorities.
	CRLFile string
	// LeaderCAFile has the authorities that sign other members' certificates, if
	// TrustedCAFile is not given. Default: those of the system.
	LeaderCAFile string
	// AllowedCNs and AllowedHostnames bound whose certificates are accepted, to
	// those with one of the common names, or valid for one of the host names. At
	// most one of the two may be given, as in etcd.
	AllowedCNs, AllowedHostnames []string

	// Auto makes a certificate that nobody has signed, for AutoHosts, and keeps it
	// in AutoDir. It is made anew before AutoYears have passed. Default: 1.
	Auto      bool
	AutoDir   string
	AutoHosts []string
	AutoYears int

	// CipherSuites are names as in crypto/tls, for TLS 1.2 only. Default: Go's.
	CipherSuites []string
	// MinVersion and MaxVersion are TLS1.2 or TLS1.3. Default: TLS1.2, and the
	// newest.
	MinVersion, MaxVersion string

	// Logger receives a line for each reload. Default: none.
	Logger *slog.Logger
}

// Enabled reports whether there is a certificate, so that TLS can be spoken.
func (c *Config) Enabled() bool { return c.CertFile != "" || c.KeyFile != "" || c.Auto }

// RequiresCert reports whether whoever connects must show a certificate.
func (c *Config) RequiresCert() bool { return c.TrustedCAFile != "" || c.ClientCertAuth }

// Field says which field is meant, and whose: there is one such configuration for each
// side.
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
		c.LeaderCAFile = "" // no authority has signed what other members have
	}
	if c.AutoYears == 0 {
		c.AutoYears = 1
	}
	if c.ClientCertFile == "" && c.ClientKeyFile == "" {
		c.ClientCertFile, c.ClientKeyFile = c.CertFile, c.KeyFile
	}
	return c
}

// maxAutoYears keeps the dates of a certificate within what X.509 can say.
const maxAutoYears = 100

// Validate reports everything that is wrong with c but what ValidateShared
// reports, and looks at no file.
func (c *Config) Validate() error {
	return errors.Join(slices.Concat(c.checkPairs(), c.checkTrust())...)
}

// ValidateShared reports what is wrong with the settings that have one field for
// both sides.
func (c *Config) ValidateShared() error {
	_, err := c.versions()
	if c.AutoYears < 0 || c.AutoYears > maxAutoYears {
		err = errors.Join(err, fmt.Errorf("AutoYears %d must be from 1 to %d years", c.AutoYears, maxAutoYears))
	}
	return err
}

// checkPairs checks that certificates and keys come together.
func (c *Config) checkPairs() (bad problems) {
	bad.If((c.CertFile == "") != (c.KeyFile == ""),
		"%s %q and %s %q go together: one is missing", c.Field("CertFile"), c.CertFile, c.Field("KeyFile"), c.KeyFile)
	bad.If((c.ClientCertFile == "") != (c.ClientKeyFile == ""), "%s %q and %s %q go together: one is missing",
		c.Field("ClientCertFile"), c.ClientCertFile, c.Field("ClientKeyFile"), c.ClientKeyFile)
	bad.If(c.Auto && (c.CertFile != "" || c.KeyFile != ""),
		"%s makes a certificate, and %s %q names one; give one of the two", c.Field("Auto"), c.Field("CertFile"), c.CertFile)
	if !c.Enabled() {
		bad = append(bad, c.checkUnused()...)
	}
	return bad
}

// checkUnused refuses what would have no effect without a certificate: somebody
// relies on it.
func (c *Config) checkUnused() (bad problems) {
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

// checkTrust checks what is asked of others' certificates.
func (c *Config) checkTrust() (bad problems) {
	need := func(name string, set bool, why string) {
		bad.If(set && c.TrustedCAFile == "" && c.Enabled(), "%s needs %s: %s", c.Field(name), c.Field("TrustedCAFile"), why)
	}
	need("ClientCertAuth", c.ClientCertAuth, "or whatever a public authority has signed would be let in")
	need("CRLFile", c.CRLFile != "", "an authority says what is revoked")
	need("AllowedCNs", len(c.AllowedCNs) > 0, "a name that nobody has signed says nothing")
	need("AllowedHostnames", len(c.AllowedHostnames) > 0, "a name that nobody has signed says nothing")
	need("CertFile", c.Peers && !c.Auto, "members know each other by their certificates")
	bad.If(len(c.AllowedCNs) > 0 && len(c.AllowedHostnames) > 0,
		"%s and %s cannot both be given", c.Field("AllowedCNs"), c.Field("AllowedHostnames"))
	return bad
}

// problems collects what is wrong with a configuration, so that one error reports all of it.
type problems []error

// If adds an error if wrong. The format gives the value and its limit.
func (p *problems) If(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// versions are what a configuration says of the protocol itself.
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
		return v, fmt.Errorf("CipherSuites has no effect with MinVersion TLS1.3, whose suites cannot be chosen")
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

// suite returns the suite of that name, unless it is weak.
func suite(name string) (uint16, error) {
	if strings.HasSuffix(name, "_CHACHA20_POLY1305") {
		name += "_SHA256" // as etcd, and Go before 1.14, call it
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
