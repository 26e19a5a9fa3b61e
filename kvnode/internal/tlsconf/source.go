package tlsconf

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// recheck is the minimum time between two reads of the files.
const recheck = time.Second

// Source has the certificates of one side. A handshake reads the files again if
// the last read is older than recheck. Its methods are safe for concurrent use.
type Source struct {
	cfg      Config   // immutable
	versions versions // immutable

	// loaded is the newest valid material.
	loaded            atomic.Pointer[material]
	reloads, failures atomic.Uint64

	mu struct {
		sync.Mutex
		checked time.Time
		sum     [sha256.Size]byte // of the files in loaded
		problem string            // error of the last reload
	}
}

// New returns the source for cfg, or nil if cfg has no TLS. The files must exist
// and be valid.
func New(cfg Config) (*Source, error) {
	if err := errors.Join(cfg.Validate(), cfg.ValidateShared()); err != nil {
		return nil, err
	}
	if !cfg.Enabled() {
		return nil, nil //nolint:nilnil // a nil Source means no TLS
	}
	cfg = cfg.WithDefaults()
	cfg.Logger = cfg.Logger.With("component", "tlsconf")
	if cfg.Auto {
		cfg.keepIn(cfg.AutoDir)
	}
	s := &Source{cfg: cfg}
	var err error
	if s.versions, err = cfg.versions(); err != nil {
		return nil, err
	}
	s.mu.checked = time.Now()
	if err := s.loadLocked(); err != nil {
		return nil, err
	}
	return s, nil
}

// loadLocked reads the files and replaces loaded if they have changed.
func (s *Source) loadLocked() error {
	if s.cfg.Auto {
		if err := s.cfg.selfSign(); err != nil {
			return err
		}
	}
	f, err := s.cfg.read()
	if err != nil {
		return err
	}
	sum := f.sum()
	if s.loaded.Load() != nil && sum == s.mu.sum && s.mu.problem == "" {
		return nil
	}
	m, err := s.cfg.parse(f)
	if err != nil {
		return err
	}
	s.mu.sum = sum
	if old := s.loaded.Swap(m); old != nil {
		s.reloads.Add(1)
		s.cfg.Logger.Info("TLS files were reloaded", "side", s.side(), "not_after", m.server.Leaf.NotAfter)
	}
	return nil
}

// current returns the material for a handshake that begins now. One caller at a
// time checks the files. The others do not wait for it.
func (s *Source) current() *material {
	if s.mu.TryLock() {
		defer s.mu.Unlock()
		if now := time.Now(); now.Sub(s.mu.checked) >= recheck {
			s.mu.checked = now
			s.reloadLocked()
		}
	}
	return s.loaded.Load()
}

// reloadLocked calls loadLocked. It counts and logs an error once, until the error
// changes.
func (s *Source) reloadLocked() {
	err := s.loadLocked()
	if err == nil {
		s.mu.problem = ""
		return
	}
	if err.Error() == s.mu.problem {
		return
	}
	s.mu.problem = err.Error()
	s.failures.Add(1)
	s.cfg.Logger.Error("TLS files cannot be reloaded; the ones before stay in use", "side", s.side(),
		"error", err, "not_after", s.loaded.Load().server.Leaf.NotAfter)
}

func (s *Source) side() string {
	if s.cfg.Peers {
		return "peer"
	}
	return "client"
}

// Stats has the counters of a Source.
type Stats struct {
	// Reloads counts changes of the files that were loaded, Failures those that were invalid.
	Reloads, Failures uint64
	// NotAfter is the end of the server certificate's validity.
	NotAfter time.Time
}

// Stats returns the counters. It checks the files first, so that a caller sees
// changes even if there are no connections.
func (s *Source) Stats() Stats {
	m := s.current()
	return Stats{Reloads: s.reloads.Load(), Failures: s.failures.Load(), NotAfter: m.server.Leaf.NotAfter}
}

// RequiresCert reports whether clients of this side need a certificate.
func (s *Source) RequiresCert() bool { return s.cfg.RequiresCert() }

// SharedAuthority returns the name of an authority that both sources trust for certificates of
// clients, or "". Either may be nil.
func SharedAuthority(a, b *Source) string {
	if a == nil || b == nil {
		return ""
	}
	for _, x := range a.loaded.Load().authorities {
		if slices.ContainsFunc(b.loaded.Load().authorities, x.Equal) {
			return x.Subject.String()
		}
	}
	return ""
}

// String describes the source, for logs.
func (s *Source) String() string {
	switch {
	case s.cfg.Auto && !s.cfg.RequiresCert():
		return "TLS with a self-signed certificate, which proves nothing"
	case s.cfg.RequiresCert():
		return "mutual TLS"
	default:
		return fmt.Sprintf("TLS with %s", s.cfg.CertFile)
	}
}

// Check returns the error that New would return, and changes no file. If a self-signed certificate is missing, it
// makes one in memory only.
func Check(cfg Config) error {
	if err := errors.Join(cfg.Validate(), cfg.ValidateShared()); err != nil {
		return err
	}
	if !cfg.Enabled() {
		return nil
	}
	cfg = cfg.WithDefaults()
	cfg.Logger = slog.New(slog.DiscardHandler) // New logs the same lines
	f, err := cfg.readOrMake()
	if err != nil {
		return err
	}
	_, err = cfg.parse(f)
	return err
}

// readOrMake returns the contents that the files would have after selfSign.
func (c *Config) readOrMake() (*contents, error) {
	if !c.Auto {
		return c.read()
	}
	own := *c
	own.keepIn(c.AutoDir)
	if own.hasOwn() {
		return own.read()
	}
	// read skips files without a name.
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
