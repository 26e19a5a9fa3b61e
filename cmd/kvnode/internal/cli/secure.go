package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// secure is how a client speaks TLS, with etcdctl's flags.
type secure struct{ ca, cert, key string }

func (s *secure) flags(fs *pflag.FlagSet) {
	fs.StringVar(&s.ca, "cacert", "", "authorities that sign members' certificates, PEM; by default the system's (ETCDCTL_CACERT)")
	fs.StringVar(&s.cert, "cert", "", "certificate to show, PEM (ETCDCTL_CERT)")
	fs.StringVar(&s.key, "key", "", "its key (ETCDCTL_KEY)")
}

// given reports whether any of the flags was.
func (s *secure) given() bool { return *s != secure{} }

// config reads the files.
func (s *secure) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.ca != "" {
		data, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("--cacert %s has no certificate in PEM form", s.ca)
		}
	}
	if s.cert != "" || s.key != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("--cert %q and --key %q: %w", s.cert, s.key, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// endpoint splits what --endpoints has into what gRPC is to dial and how to speak
// there. What does not say so is spoken to as the flags do.
func (s *secure) endpoint(name string) (target string, creds credentials.TransportCredentials, err error) {
	scheme, rest, ok := strings.Cut(name, "://")
	if !ok {
		scheme, rest = "http", name
		if s.given() {
			scheme = "https"
		}
	}
	addr := strings.TrimSuffix(rest, "/")
	target = "passthrough:///" + addr
	switch {
	case addr != "" && (scheme == "unix" || scheme == "unixs"):
		target = "unix:" + addr
	case addr == "" || strings.Contains(addr, "/") || scheme != "http" && scheme != "https":
		return "", nil, fmt.Errorf("--endpoints %q must be host:port, http://host:port, https://host:port or unix:///path", name)
	}
	if scheme == "http" || scheme == "unix" {
		return target, insecure.NewCredentials(), nil
	}
	cfg, err := s.config()
	if err != nil {
		return "", nil, err
	}
	return target, credentials.NewTLS(cfg), nil
}
