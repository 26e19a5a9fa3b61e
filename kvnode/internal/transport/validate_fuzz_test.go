package transport

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// script is what the fuzzer makes up: messages of one peer, each with its length
// before it. Sender and receiver are put right, or little would get past them,
// unless raw.
func script(data []byte, raw bool) (ms []*raftpb.Message) {
	for len(data) > 0 && len(ms) < 64 {
		b, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return ms
		}
		data = data[n:]
		m, err := decode(b)
		if err != nil {
			continue
		}
		if !raw {
			m.From, m.To = new(uint64(2)), new(uint64(1))
		}
		ms = append(ms, m)
	}
	return ms
}

func scriptOf(ms ...*raftpb.Message) (data []byte) {
	for _, m := range ms {
		b, err := proto.Marshal(m)
		must(err)
		data = protowire.AppendBytes(data, b)
	}
	return data
}

// play steps what is valid, as a node does.
func play(r *rig, ms []*raftpb.Message, check func(m *raftpb.Message, lastIndex uint64) error) (stepped int) {
	for i, m := range ms {
		if check(m, r.lastIndex()) != nil {
			continue
		}
		stepped++
		r.step(m)
		if i%8 == 7 {
			r.node.Tick()
			r.work()
		}
	}
	return stepped
}

func checked(m *raftpb.Message, lastIndex uint64) error {
	if err := Validate(m, 2, 1); err != nil {
		return err
	}
	return ValidateAgainst(m, lastIndex)
}

// One peer, whatever it sends, cannot make raft panic, in any role.
func FuzzOnePeerCannotCrashRaft(f *testing.F) {
	for role := range byte(numRoles) {
		for _, c := range hostile {
			f.Add(role, scriptOf(append([]*raftpb.Message{c.m}, c.then...)...))
		}
		f.Add(role, scriptOf(
			message(raftpb.MsgApp, func(m *raftpb.Message) { after(m, 6, 2, entry(7, 3), entry(8, 3)) }),
			message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Commit = new(uint64(8)) }),
			message(raftpb.MsgSnap, snapshotOf(20, 3, voters(1, 2))),
			message(raftpb.MsgTimeoutNow, nil),
			message(raftpb.MsgVoteResp, func(m *raftpb.Message) { m.Term = new(uint64(4)) }),
			message(raftpb.MsgProp, func(m *raftpb.Message) { m.Entries = []*raftpb.Entry{{Data: []byte("x")}} }),
		))
	}
	f.Fuzz(func(t *testing.T, role byte, data []byte) {
		play(newRig(int(role%numRoles)), script(data, role >= 128), checked)
	})
}

// Without the rules the fuzz target's own seeds crash raft: it can see what it
// looks for.
func TestFuzzTargetFindsMissingRules(t *testing.T) {
	crashes := 0
	for role := range numRoles {
		for _, c := range hostile {
			ms := script(scriptOf(append([]*raftpb.Message{c.m}, c.then...)...), false)
			if crashed(func() {
				play(newRig(role), ms, func(*raftpb.Message, uint64) error { return nil })
			}) {
				crashes++
			}
			if crashed(func() { play(newRig(role), ms, checked) }) {
				t.Errorf("%s crashes a %s in spite of the rules", c.name, roleNames[role])
			}
		}
	}
	if crashes < len(hostile) {
		t.Errorf("%d crashes without the rules, want at least %d", crashes, len(hostile))
	}
}

func crashed(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}
