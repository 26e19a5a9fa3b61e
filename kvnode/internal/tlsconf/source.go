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

// recheck is how often the files are read at most. They are small, and read for
// new connections only.
const recheck = time.Second

// Source is where one side's certificates come from, at the moment of each
// handshake. Its methods are safe for concurrent use.
type Source struct {
	cfg      Config   // immutable
	versions versions // immutable

	// loaded is the newest material that made sense.
	loaded            atomic.Pointer[material]
	reloads, failures atomic.Uint64

	mu struct {
		sync.Mutex
		checked time.Time
		sum     [sha256.Size]byte // of what was read last, good or bad
		problem string            // what was wrong with it
	}
}

// New returns the source for cfg, nil if that has no TLS. The files must be there
// and make sense.
func New(cfg Config) (*Source, error) {
	if err := errors.Join(cfg.Validate(), cfg.ValidateShared()); err != nil {
		return nil, err
	}
	if !cfg.Enabled() {
		return nil, nil //nolint:nilnil // no TLS is a configuration too, and a nil Source says so
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

// loadLocked reads the files, and uses what they say if it is news.
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

// current returns what to use for a handshake that begins now. One caller at a
// time looks at the files; the others do not wait for it.
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

// reloadLocked keeps what there is if the files make no sense, and says so once
// for each thing that is wrong.
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
	s.cfg.Logger.Error("TLS files cannot be reloaded; those that were read before stay in use", "side", s.side(),
		"error", err, "not_after", s.loaded.Load().server.Leaf.NotAfter)
}

func (s *Source) side() string {
	if s.cfg.Peers {
		return "peer"
	}
	return "client"
}

// Stats is how a Source has fared.
type Stats struct {
	// Reloads counts changes of files that were taken over, Failures those that
	// were not.
	Reloads, Failures uint64
	// NotAfter is when the certificate for those who connect ends.
	NotAfter time.Time
}

// Stats looks for changes first, so that whoever watches it sees them without a
// connection.
func (s *Source) Stats() Stats {
	m := s.current()
	return Stats{Reloads: s.reloads.Load(), Failures: s.failures.Load(), NotAfter: m.server.Leaf.NotAfter}
}

// Requires reports whether whoever connects must show a certificate.
func (s *Source) Requires() bool { return s.cfg.RequiresCert() }

// Shared returns the name of an authority that is trusted by both of two sources which
// ask those who connect for certificates, "" if there is none. Either may be nil.
func Shared(a, b *Source) string {
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

// String says what the source is, for logs.
func (s *Source) String() string {
	switch {
	case s.cfg.Auto && !s.cfg.RequiresCert():
		return "TLS with a certificate of its own making, which proves nothing"
	case s.cfg.RequiresCert():
		return "mutual TLS"
	default:
		return fmt.Sprintf("TLS with %s", s.cfg.CertFile)
	}
}

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
