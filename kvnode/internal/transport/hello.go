package transport

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// Hello is the first message of both ends of a connection.
type Hello struct {
	ClusterID uint64 `json:"cluster_id"`
	From      uint64 `json:"from"`
	To        uint64 `json:"to"`
	// Token is the token of the sender's cluster. Versions that do not know the
	// field send "".
	Token string `json:"token,omitempty"`
	// Instance identifies the sender's data directory (store.Member.Instance).
	Instance string `json:"instance"`
	Name     string `json:"name"`
	// PeerURLs are the sender's own peer URLs, separated by commas.
	PeerURLs string `json:"peer_urls,omitempty"`
	// Promise is the sender's leaderlease Duration, Skew its MaxClockSkew and
	// DriftPPM its MaxDriftPPM.
	Promise  time.Duration `json:"promise"`
	Skew     time.Duration `json:"skew"`
	DriftPPM int           `json:"drift_ppm"`
	// Hold is the rest of the sender's restart hold (leaderlease, V6), during which
	// it cannot lead. Versions that do not know the field send 0.
	Hold time.Duration `json:"hold,omitempty"`
	// ClusterVersion is the newest cluster version that the sender knows
	// (store.ClusterVersionNewest). 0 means the first one.
	ClusterVersion int64 `json:"format,omitempty"`
	// Log is the end of the log that the sender's process found at its start.
	Log DiskState `json:"log,omitzero"`
	// ProcessID identifies the sender's process if the process has a supervisor. Former versions send another field,
	// "process", which is ignored.
	ProcessID ProcessID `json:"process_id,omitzero"`
}

// DiskState is the end of a member's log as its process found it at its start. It
// does not change while the process runs, so that peers can compare it with what
// the member reported before.
type DiskState struct {
	// Boot is a random text that identifies the process, also without a supervisor.
	// Versions that do not report their log send "".
	Boot   string `json:"boot"`
	Term   uint64 `json:"term"`   // of the hard state
	Commit uint64 `json:"commit"` // likewise
	Last   uint64 `json:"last"`   // index
}

// Limits of a hello, which may come from any program.
const (
	maxInstance = 64 // bytes
	maxProcess  = 64
	maxName     = 1 << 10
	maxToken    = 1 << 10
	maxURLs     = 8 << 10
	maxURLCount = 64
	maxHello    = 16 << 10 // of the whole hello as JSON
)

// Validate reports the first field of h that exceeds its limit. Members refuse
// such a hello.
func (h *Hello) Validate() error {
	for _, field := range []struct {
		name  string
		size  int
		limit int
		unit  string
	}{
		{"instance", len(h.Instance), maxInstance, "bytes"},
		{"boot", len(h.Log.Boot), maxProcess, "bytes"},
		{"name", len(h.Name), maxName, "bytes"},
		{"token", len(h.Token), maxToken, "bytes"},
		{"peer URLs", len(h.PeerURLs), maxURLs, "bytes"},
		{"peer URLs", strings.Count(h.PeerURLs, ",") + 1, maxURLCount, "URLs"},
	} {
		if field.size > field.limit {
			return fmt.Errorf("%s: %d %s exceed the limit of %d", field.name, field.size, field.unit, field.limit)
		}
	}
	full := *h
	full.To, full.Hold, full.ProcessID = math.MaxUint64, math.MaxInt64, ProcessID{1} // they are filled in later
	data, err := json.Marshal(deathNotice{Hello: full})                              // the largest packet with a hello
	if err == nil && len(data) > maxHello {
		err = fmt.Errorf("%d bytes as JSON exceed the limit of %d: name, token and peer URLs are too long together, or have many characters that JSON escapes",
			len(data), maxHello)
	}
	return err
}

// ProcessID identifies a process of a member. It is the first 16 bytes of the
// SHA-256 of the process's Secret. It is public: the hello carries it to each
// peer. It is zero if the process has no supervisor, as in former versions.
type ProcessID [16]byte

// Secret proves that a process is dead. The supervisor draws it and reveals it
// in the death notice, after the process has exited. Until then no other process
// knows it, not even the supervised one.
type Secret [32]byte

// NewSecret draws a secret.
func NewSecret() (s Secret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// ProcessID returns the ID of the process to which the secret belongs.
func (s *Secret) ProcessID() ProcessID {
	sum := sha256.Sum256(s[:])
	return ProcessID(sum[:len(ProcessID{})])
}

// MarshalText returns hexadecimal digits.
func (p ProcessID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, p[:]), nil }

// UnmarshalText decodes hexadecimal digits.
func (p *ProcessID) UnmarshalText(text []byte) error { return decodeHex(p[:], text, "process ID") }

// MarshalText returns hexadecimal digits.
func (s Secret) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText decodes hexadecimal digits.
func (s *Secret) UnmarshalText(text []byte) error { return decodeHex(s[:], text, "secret") }

// decodeHex fills all of dst or fails. It must not accept a short value as one
// that ends in zeros.
func decodeHex(dst, text []byte, what string) error {
	if len(text) != hex.EncodedLen(len(dst)) {
		return fmt.Errorf("%s of %d hexadecimal digits, want %d", what, len(text), hex.EncodedLen(len(dst)))
	}
	if _, err := hex.Decode(dst, text); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
