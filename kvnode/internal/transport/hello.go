package transport

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// Hello is what both ends say before anything else on a connection.
type Hello struct {
	ClusterID uint64 `json:"cluster_id"`
	From      uint64 `json:"from"`
	To        uint64 `json:"to"`
	// Token is of the cluster that the sender was started for; "" is a version that
	// does not say.
	Token string `json:"token,omitempty"`
	// Instance is the sender's (store.Member.Instance).
	Instance string `json:"instance"`
	Name     string `json:"name"`
	// PeerURLs are where the sender says that it listens.
	PeerURLs string `json:"peer_urls,omitempty"` // separated by commas
	// Promise is the sender's leaderlease Duration, Skew its MaxClockSkew and
	// DriftPPM its MaxDriftPPM.
	Promise  time.Duration `json:"promise"`
	Skew     time.Duration `json:"skew"`
	DriftPPM int           `json:"drift_ppm"`
	// Hold is for how long the sender is still in its restart hold (leaderlease, V6):
	// it cannot lead before. 0 is also a version that does not say.
	Hold time.Duration `json:"hold,omitempty"`
	// Format is the newest that the sender's version knows (store.FormatNewest); 0 is
	// a version that knows the first only, and does not say so.
	Format int64 `json:"format,omitempty"`
	// Log is what the sender's process found on its disk.
	Log LogEnd `json:"log,omitzero"`
	// ProcessID identifies the sender's process, if a supervisor waits for its end. Former versions send a number in the
	// field "process" instead, which is ignored: it was no proof, and they refuse this version's notices as well.
	ProcessID ProcessID `json:"process_id,omitzero"`
}

// LogEnd is what a process found of its member's log when it began. It stays the same
// for as long as the process runs, so that it can be held against what the member had
// said before, whatever else is under way.
type LogEnd struct {
	// Process names the process, by a text that it draws when it begins; "" is a version
	// that says nothing of its log.
	Process string `json:"boot"`
	Term    uint64 `json:"term"`   // of the hard state
	Commit  uint64 `json:"commit"` // likewise
	Last    uint64 `json:"last"`   // index
}

// Bounds of a hello. Anybody may have sent it, so these are far below what
// memory or a log could take, and far above what members say.
const (
	maxInstance = 64 // bytes
	maxProcess  = 64
	maxName     = 1 << 10
	maxToken    = 1 << 10
	maxURLs     = 8 << 10
	maxURLCount = 64
	maxHello    = 16 << 10 // all of it, as JSON
)

// Validate reports what is too long in h. Members refuse a hello in which something
// is.
func (h *Hello) Validate() error {
	for _, field := range []struct {
		name  string
		size  int
		limit int
		unit  string
	}{
		{"instance", len(h.Instance), maxInstance, "bytes"},
		{"boot", len(h.Log.Process), maxProcess, "bytes"},
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
	full.To, full.Hold, full.ProcessID = math.MaxUint64, math.MaxInt64, ProcessID{1} // which are filled in later
	data, err := json.Marshal(obituary{Hello: full})                                 // the largest packet that has a hello
	if err == nil && len(data) > maxHello {
		err = fmt.Errorf("%d bytes as JSON exceed the limit of %d: name, token and peer URLs are too long together, or have many characters that JSON escapes",
			len(data), maxHello)
	}
	return err
}

// Handler is the node behind a transport. Its methods are called concurrently.
// Close waits for them to return.
type Handler interface {
	// Admit decides whether a peer may connect. Its error goes back to the peer,
	// whose Refused is called with it. A *Refusal in its chain gives the reason.
	Admit(h Hello) error
	// Refused says that peer refuses this member, and why: a RefusedError. It is
	// called again with each attempt that is refused.
	Refused(peer uint64, err error)
	// Connected says that peer has admitted this member and what it said. It is
	// called each time the control stream connects.
	Connected(peer uint64, h Hello)
	// Gone says that peer has ended the last connection on which it sent messages, by
	// itself or because its process died. It is called after Receive for all that came.
	Gone(peer uint64)
	// Died says that a process of peer will never execute another instruction, if peer has said that it has a process
	// with that ID: then the caller knows its secret. Any other ID proves nothing. Messages that the process had sent
	// may still be on their way to Receive.
	Died(peer uint64, process ProcessID)
	// Receive takes a message that Validate accepts, and the Hello.ProcessID of the very
	// connection that it was read from. It may block, which holds
	// up this peer's stream of the same kind and nothing else.
	Receive(m *raftpb.Message, process ProcessID)
	// ReceiveSnapshot takes a MsgSnap and the state that goes with it. It
	// returns once the state is durable, or an error: then it is asked for again.
	// Whoever has read size bytes of state has read them undamaged: the last of
	// them come only after the checksums were compared. It must read them all.
	// At most one call is under way for each peer.
	ReceiveSnapshot(m *raftpb.Message, size int64, state io.Reader) error
	// Unreachable says that messages to peer were lost. Many losses make few
	// calls.
	Unreachable(peer uint64)
	// SnapshotSent says what became of a snapshot: raft waits for it.
	SnapshotSent(peer uint64, err error)
}

// State is a snapshot's state to send (store.Snapshot).
type State interface {
	Size() int64
	WriteTo(w io.Writer) (int64, error)
	Close() error
}

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
