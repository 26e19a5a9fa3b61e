package tlsconf

import (
	"errors"
	"fmt"
	"log/slog"
)

// Check reports why New would refuse cfg, files included, and changes nothing: a
// certificate of our own making that is missing is made in memory only.
func Check(cfg Config) error {
	if err := errors.Join(cfg.Validate(), cfg.ValidateShared()); err != nil {
		return err
	}
	if !cfg.Enabled() {
		return nil
	}
	cfg = cfg.WithDefaults()
	cfg.Logger = slog.New(slog.DiscardHandler) // New says the same, and once is enough
	f, err := cfg.readOrMake()
	if err != nil {
		return err
	}
	_, err = cfg.parse(f)
	return err
}

// readOrMake returns what the files would hold after selfSign.
func (c *Config) readOrMake() (*contents, error) {
	if !c.Auto {
		return c.read()
	}
	own := *c
	own.keepIn(c.AutoDir)
	if own.hasOwn() {
		return own.read()
	}
	// Nothing is read for what has no name.
	given := *c
	given.CertFile, given.KeyFile = "", ""
	f, err := given.read()
	if err != nil {
		return nil, err
	}
	if f.cert, f.key, err = c.makeOwn(); err != nil {
		return nil, fmt.Errorf("%s: make a certificate: %w", c.Field("Auto"), err)
	}
	if c.ClientCertFile == "" {
		f.clientCert, f.clientKey = f.cert, f.key
	}
	return f, nil
}
