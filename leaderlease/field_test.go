package leaderlease

import (
	"bytes"
	"math"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/leaderlease/core"
)

// overWire is what a peer receives of m.
func overWire(tb testing.TB, m *raftpb.Message) *raftpb.Message {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	got := &raftpb.Message{}
	if err := proto.Unmarshal(b, got); err != nil {
		tb.Fatal(err)
	}
	return got
}

func TestFieldSurvivesTheWire(t *testing.T) {
	probe := core.Probe{Sent: core.Instant(90 * time.Minute), Duration: 900 * ms}
	grant := core.Grant{Sent: 1, Duration: 2, Reading: core.Forever, Incarnation: 4}
	release := core.Release{Term: 7, At: core.Instant(time.Hour)}
	// Other unknown fields of the message are left alone.
	foreign := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 5)

	m := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), Term: new(uint64(3))}
	m.ProtoReflect().SetUnknown(foreign)
	attachProbe(m, probe)
	m = overWire(t, m)
	if got, err := probeOf(m); got != probe || err != nil {
		t.Errorf("probeOf() = %v, %v, want %v", got, err, probe)
	}
	if got := m.ProtoReflect().GetUnknown(); !bytes.HasPrefix(got, foreign) {
		t.Errorf("unknown fields = %x, want them to keep %x", got, foreign)
	}
	if m.GetTerm() != 3 || m.GetType() != raftpb.MsgHeartbeat {
		t.Errorf("message = %v, want it otherwise unchanged", m)
	}

	m = &raftpb.Message{}
	attachGrant(m, grant)
	if got, err := grantOf(overWire(t, m)); got != grant || err != nil {
		t.Errorf("grantOf() = %v, %v, want %v", got, err, grant)
	}
	m = &raftpb.Message{}
	attachRelease(m, release)
	if got, err := releaseOf(overWire(t, m)); got != release || err != nil {
		t.Errorf("releaseOf() = %v, %v, want %v", got, err, release)
	}
}

// The price of a lease on the wire: less than 64 bytes a heartbeat, whatever
// the clocks show and however long the machines have been up.
func TestFieldIsSmall(t *testing.T) {
	century := core.Instant(100 * 365 * 24 * time.Hour)
	for name, attach := range map[string]func(*raftpb.Message){
		"probe": func(m *raftpb.Message) { attachProbe(m, core.Probe{Sent: century, Duration: time.Hour}) },
		"grant": func(m *raftpb.Message) {
			attachGrant(m, core.Grant{Sent: century, Duration: time.Hour, Reading: century, Incarnation: 1 << 42})
		},
		"release": func(m *raftpb.Message) { attachRelease(m, core.Release{Term: math.MaxInt64, At: century}) },
		"absurd": func(m *raftpb.Message) {
			attach(m, kindGrant, math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64)
		},
	} {
		m := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), To: new(uint64(1)), From: new(uint64(2)), Term: new(uint64(9))}
		before := proto.Size(m)
		attach(m)
		added := proto.Size(m) - before
		t.Logf("%s: %d bytes", name, added)
		if added <= 0 || added >= 64 {
			t.Errorf("%s adds %d bytes to a message, want fewer than 64", name, added)
		}
	}
}

// field is a lease field with the given payload.
func field(payload ...byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, fieldNumber, protowire.BytesType), payload)
}

// payload is a payload of the given version and kind.
func payload(version, kind byte, values ...uint64) []byte {
	b := []byte{version, kind}
	for _, v := range values {
		b = protowire.AppendVarint(b, v)
	}
	return b
}

// malformedFields is what a leader or follower must not act on, for a message
// that should carry n values of the given kind. values would be right.
func malformedFields(kind byte, values ...uint64) map[string][]byte {
	good := payload(fieldVersion, kind, values...)
	wide := protowire.AppendTag(nil, fieldNumber, protowire.VarintType)
	beyond := append([]uint64{1 << 63}, values[1:]...)
	return map[string][]byte{
		"empty payload":         field(),
		"version alone":         field(fieldVersion),
		"no values":             field(fieldVersion, kind),
		"foreign version":       field(payload(fieldVersion+1, kind, values...)...),
		"version 0":             field(payload(0, kind, values...)...),
		"kind 0":                field(payload(fieldVersion, 0, values...)...),
		"another kind":          field(payload(fieldVersion, kind%3+1, values...)...),
		"kind unknown":          field(payload(fieldVersion, 200, values...)...),
		"a value missing":       field(payload(fieldVersion, kind, values[1:]...)...),
		"a value too many":      field(append(good, 1)...),
		"value 0":               field(payload(fieldVersion, kind, append([]uint64{0}, values[1:]...)...)...),
		"last value 0":          field(payload(fieldVersion, kind, append(values[:len(values)-1:len(values)-1], 0)...)...),
		"negative value":        field(payload(fieldVersion, kind, beyond...)...),
		"varint without end":    field(fieldVersion, kind, 0x80, 0x80),
		"varint of 11 bytes":    field(append([]byte{fieldVersion, kind}, bytes.Repeat([]byte{0xff}, 11)...)...),
		"repeated":              append(field(good...), field(good...)...),
		"repeated, first bad":   append(field(), field(good...)...),
		"wire type varint":      append(protowire.AppendVarint(wide, 5), field(good...)...),
		"wire type varint only": protowire.AppendVarint(wide, 5),
		"too long":              field(append(good, make([]byte, maxFieldLen)...)...),
		"length beyond the end": field(good...)[:len(field(good...))-1],
		"tag cut":               {0x80},
		"garbage before it":     append([]byte{0xff, 0xff}, field(good...)...),
		"garbage after it":      append(field(good...), 0x80),
	}
}

func TestMalformedProbesAreCountedAndIgnored(t *testing.T) {
	now := uint64(time.Hour)
	for name, unknown := range malformedFields(kindProbe, now, uint64(900*ms)) {
		t.Run("probe/"+name, func(t *testing.T) {
			p := newPuppet(t)
			p.follow(2, 3)
			m := p.message(raftpb.MsgHeartbeat, 3, 1)
			m.ProtoReflect().SetUnknown(unknown)
			if !p.Incoming(m) {
				t.Error("Incoming(heartbeat) = false, want raft to see it")
			}
			if s := p.Stats(); s.Malformed != 1 || s.Absent != 0 || s.Promises != 0 || s.RefusedProbes != 0 {
				t.Errorf("Stats() = %d malformed, %d absent, %d promises, %d refused, want 1, 0, 0, 0",
					s.Malformed, s.Absent, s.Promises, s.RefusedProbes)
			}
			p.grantsNothing(3)
		})
	}
}

func TestMalformedGrantsAreCountedAndIgnored(t *testing.T) {
	now := uint64(time.Hour)
	for name, unknown := range malformedFields(kindGrant, now, uint64(900*ms), now, 1) {
		t.Run("grant/"+name, func(t *testing.T) {
			p := newPuppet(t)
			p.lead(2)
			m := p.message(raftpb.MsgHeartbeatResp, 2, 1)
			m.ProtoReflect().SetUnknown(unknown)
			if !p.Incoming(m) {
				t.Error("Incoming(heartbeat response) = false, want raft to see it")
			}
			if s := p.Stats(); s.Malformed != 1 || s.Absent != 0 || s.Renewals != 0 {
				t.Errorf("Stats() = %d malformed, %d absent, %d renewals, want 1, 0, 0", s.Malformed, s.Absent, s.Renewals)
			}
			p.want(core.Expired)
		})
	}
}

func TestMalformedReleasesAreCountedAndIgnored(t *testing.T) {
	now := uint64(time.Hour)
	for name, unknown := range malformedFields(kindRelease, 2, now) {
		t.Run("release/"+name, func(t *testing.T) {
			p := newPuppet(t)
			p.follow(2, 3)
			p.promiseTo(3)
			m := p.message(raftpb.MsgTimeoutNow, 3, 1)
			m.ProtoReflect().SetUnknown(unknown)
			if p.Incoming(m) {
				t.Error("Incoming(timeout now) = true, want it kept from a node that is bound")
			}
			if s := p.Stats(); s.Malformed != 1 || s.Withheld.TimeoutNowIn != 1 {
				t.Errorf("Stats() = %d malformed, %d withheld, want 1, 1", s.Malformed, s.Withheld.TimeoutNowIn)
			}
		})
	}
}

// A release counts only where the leader that gave it would put it: on its own
// MsgTimeoutNow, and on the forced votes of the campaign that follows.
func TestReleaseRidesOnItsOwnTransferOnly(t *testing.T) {
	tests := []struct {
		name   string
		typ    raftpb.MessageType
		term   uint64 // of the message; the promise is of term 2
		rel    core.Release
		forced bool
		admits bool
	}{
		{"on the leader's own TimeoutNow", raftpb.MsgTimeoutNow, 2, core.Release{Term: 2, At: core.Instant(time.Minute)}, false, true},
		{"from before the probe was sent", raftpb.MsgTimeoutNow, 2, core.Release{Term: 2, At: core.Instant(time.Minute) - 1}, false, false},
		{"of a later term than its TimeoutNow", raftpb.MsgTimeoutNow, 2, core.Release{Term: 3, At: core.Instant(time.Hour)}, false, false},
		{"of an earlier term than its TimeoutNow", raftpb.MsgTimeoutNow, 3, core.Release{Term: 2, At: core.Instant(time.Hour)}, false, false},
		{"on a forced vote", raftpb.MsgVote, 3, core.Release{Term: 2, At: core.Instant(time.Hour)}, true, true},
		{"on a vote that nobody forced", raftpb.MsgVote, 3, core.Release{Term: 2, At: core.Instant(time.Hour)}, false, false},
		{"on a forced vote of its own term", raftpb.MsgVote, 3, core.Release{Term: 3, At: core.Instant(time.Hour)}, true, false},
		{"on a pre-vote", raftpb.MsgPreVote, 3, core.Release{Term: 2, At: core.Instant(time.Hour)}, true, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := following(t)
			p.promiseTo(3)
			m := p.message(tc.typ, 3, 1)
			m.Term = new(tc.term)
			if tc.forced {
				m.Context = []byte(core.CampaignTransfer)
			}
			attachRelease(m, tc.rel)
			if got := p.Incoming(m); got != tc.admits {
				t.Errorf("Incoming(%v) = %v, want %v", m, got, tc.admits)
			}
		})
	}
}

// A message with nothing of ours is what a peer without the library sends: it
// is counted apart, because it is no sign of damage.
func TestAbsentFieldsAreCountedApart(t *testing.T) {
	foreign := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 5)
	p := newPuppet(t)
	p.lead(2)
	for _, unknown := range [][]byte{nil, foreign} {
		for _, typ := range []raftpb.MessageType{raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp} {
			m := p.message(typ, 2, 1)
			m.ProtoReflect().SetUnknown(unknown)
			p.Incoming(m)
		}
	}
	// Votes carry a release only in a transfer: its absence is not worth a count.
	p.Incoming(p.message(raftpb.MsgVote, 2, 1))
	if s := p.Stats(); s.Absent != 4 || s.Malformed != 0 {
		t.Errorf("Stats() = %d absent, %d malformed, want 4, 0", s.Absent, s.Malformed)
	}
}

// promiseTo lets the puppet promise to leader in its term.
func (p *puppet) promiseTo(leader uint64) {
	p.t.Helper()
	m := p.message(raftpb.MsgHeartbeat, leader, 1)
	attachProbe(m, core.Probe{Sent: core.Instant(time.Minute), Duration: 900 * ms})
	before := p.Stats().Promises
	p.Incoming(m)
	if p.Stats().Promises != before+1 {
		p.t.Fatalf("Incoming(probe of %d) made no promise", leader)
	}
}

// grantsNothing fails the test if the puppet is bound to leader, or says so.
func (p *puppet) grantsNothing(leader uint64) {
	p.t.Helper()
	if left := p.Info().Promise.Remaining; left != 0 {
		p.t.Errorf("Info().Promise.Remaining = %v, want no promise", left)
	}
	for _, m := range p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgHeartbeatResp, 1, leader)}}) {
		if g, err := grantOf(m); err == nil {
			p.t.Errorf("Ready() let grant %v out, want none", g)
		}
	}
}

// A grant of a puppet that promised is well-formed, and names the probe.
func TestGrantNamesTheProbe(t *testing.T) {
	p := newPuppet(t)
	p.follow(2, 3)
	p.promiseTo(3)
	msgs := p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgHeartbeatResp, 1, 3)}})
	g, err := grantOf(overWire(t, msgs[0]))
	want := core.Grant{Sent: core.Instant(time.Minute), Duration: 900 * ms, Reading: p.clock.Now(), Incarnation: p.nonce.incarnation()}
	if g != want || err != nil {
		t.Errorf("grantOf(answer) = %+v, %v, want %+v", g, err, want)
	}
	// Raft's own answer to another node carries nothing.
	other := p.Ready(raft.Ready{Messages: []*raftpb.Message{p.message(raftpb.MsgHeartbeatResp, 1, 2)}})
	if _, err := grantOf(other[0]); err == nil {
		t.Error("answer to node 2 carries a grant, want it for the leader only")
	}
}
