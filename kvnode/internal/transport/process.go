package transport

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// ProcessID identifies a process of a member: the first 16 bytes of the SHA-256 of its Secret. It is public, because
// each peer sees it in the hello. The zero value is a process without a supervisor, or one whose version does not say.
type ProcessID [16]byte

// Secret proves that a process is dead. The supervisor of the process draws it and reveals it in the death notice, once
// the process has exited. Until then no other process has it, not even the one that it is about.
type Secret [32]byte

// NewSecret draws a secret.
func NewSecret() (s Secret) {
	_, _ = rand.Read(s[:]) // it never fails
	return s
}

// ProcessID returns the ID of the process that the secret is about.
func (s *Secret) ProcessID() ProcessID {
	sum := sha256.Sum256(s[:])
	return ProcessID(sum[:len(ProcessID{})])
}

// MarshalText implements encoding.TextMarshaler: JSON has the ID in hexadecimal digits.
func (p ProcessID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, p[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *ProcessID) UnmarshalText(text []byte) error { return decodeHex(p[:], text, "process ID") }

// MarshalText implements encoding.TextMarshaler: JSON has the secret in hexadecimal digits.
func (s Secret) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Secret) UnmarshalText(text []byte) error { return decodeHex(s[:], text, "secret") }

// decodeHex fills all of dst or fails: a value that is too short must not pass for one that ends in zeros.
func decodeHex(dst, text []byte, what string) error {
	if len(text) != hex.EncodedLen(len(dst)) {
		return fmt.Errorf("%s of %d hexadecimal digits, want %d", what, len(text), hex.EncodedLen(len(dst)))
	}
	if _, err := hex.Decode(dst, text); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
