package tlsconf

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
)

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
