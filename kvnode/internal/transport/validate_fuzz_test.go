package transport

import (
	"fmt"
	"io"
	"log"
	"maps"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/quorum"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// script is the input of the fuzzer: messages of one peer, each with its length
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

// play steps the valid messages, as a node does.
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

// rig is member 1 of voters 1, 2 and 3. The test plays the other members. Its log ends at 6, in
// terms 1, 1, 1, 1, 2, 2; 4 entries are committed. Nothing is compacted, and there is no snapshot.
type rig struct {
	node    *raft.RawNode
	storage *rigStorage
	conf    *raftpb.ConfState
}

// rigStorage has a configuration without a snapshot, as after a bootstrap.
type rigStorage struct {
	*raft.MemoryStorage
	hard *raftpb.HardState
}

func (s *rigStorage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return s.hard, &raftpb.ConfState{Voters: []uint64{1, 2, 3}}, nil
}

const (
	asFollower = iota
	asOrphan   // a follower without a leader
	asPreCandidate
	asCandidate
	asLeader
	numRoles
)

var roleNames = [numRoles]string{"follower", "orphan", "pre-candidate", "candidate", "leader"}

// newRig returns a member in term 3. Its leader, if it has one, is member 2.
func newRig(role int) *rig {
	s := &rigStorage{MemoryStorage: raft.NewMemoryStorage(), hard: &raftpb.HardState{Term: new(uint64(2)), Commit: new(uint64(4))}}
	var ents []*raftpb.Entry
	for i, term := range []uint64{1, 1, 1, 1, 2, 2} {
		ents = append(ents, &raftpb.Entry{Index: new(uint64(i + 1)), Term: &term})
	}
	must(s.Append(ents))
	quiet := &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}
	node, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: s, Applied: 4,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 4, CheckQuorum: true, PreVote: true, Logger: quiet,
	})
	must(err)
	r := &rig{node: node, storage: s, conf: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}
	switch role {
	case asFollower, asOrphan:
		m := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(3))}
		r.step(m)
		if role == asOrphan {
			must(node.ForgetLeader())
		}
	default:
		must(node.Campaign())
		r.work()
		if role >= asCandidate {
			r.vote(raftpb.MsgPreVoteResp)
		}
		if role == asLeader {
			r.vote(raftpb.MsgVoteResp)
		}
	}
	r.work()
	want := []raft.StateType{raft.StateFollower, raft.StateFollower, raft.StatePreCandidate, raft.StateCandidate, raft.StateLeader}[role]
	if st := node.BasicStatus(); st.RaftState != want {
		panic(fmt.Sprintf("rig as %s is %s, want %s", roleNames[role], st.RaftState, want))
	}
	return r
}

func (r *rig) vote(t raftpb.MessageType) {
	r.step(&raftpb.Message{Type: &t, From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(3))})
}

// step steps m and does all the work that follows. Errors are raft's way to
// ignore a message.
func (r *rig) step(m *raftpb.Message) {
	_ = r.node.Step(m)
	r.work()
}

// work is the loop around a RawNode.
func (r *rig) work() {
	for r.node.HasReady() {
		rd := r.node.Ready()
		if !raft.IsEmptySnap(rd.Snapshot) {
			must(r.storage.ApplySnapshot(rd.Snapshot))
			r.conf = rd.Snapshot.GetMetadata().GetConfState()
		}
		must(r.storage.Append(rd.Entries))
		if !raft.IsEmptyHardState(rd.HardState) {
			must(r.storage.SetHardState(rd.HardState))
		}
		for _, m := range rd.Messages {
			if _, err := proto.Marshal(m); err != nil {
				panic(err)
			}
		}
		for _, e := range rd.CommittedEntries {
			r.apply(e)
		}
		r.node.Advance(rd)
	}
}

// apply applies a change of the configuration as a node does: not if it does not
// fit the configuration, which the transport cannot know.
func (r *rig) apply(e *raftpb.Entry) {
	var cc raftpb.ConfChangeI
	switch e.GetType() {
	case raftpb.EntryConfChange:
		c := &raftpb.ConfChange{}
		must(proto.Unmarshal(e.GetData(), c))
		cc = c
	case raftpb.EntryConfChangeV2:
		c := &raftpb.ConfChangeV2{}
		must(proto.Unmarshal(e.GetData(), c))
		cc = c
	default:
		return
	}
	if r.fits(cc.AsV2()) {
		r.conf = r.node.ApplyConfChange(cc)
	}
}

// fits reports whether a change fits the configuration. It returns true for changes
// that fit no configuration, which checkChange must have refused.
func (r *rig) fits(cc *raftpb.ConfChangeV2) bool {
	voters := []quorum.MajorityConfig{{}, nil}
	progress := tracker.ProgressMap{}
	add := func(ids []uint64, learner bool, set map[uint64]struct{}) {
		for _, id := range ids {
			set[id] = struct{}{}
			progress[id] = &tracker.Progress{IsLearner: learner}
		}
	}
	add(r.conf.GetVoters(), false, voters[0])
	if len(r.conf.GetVotersOutgoing()) > 0 {
		voters[1] = quorum.MajorityConfig{}
		add(r.conf.GetVotersOutgoing(), false, voters[1])
	}
	tr := tracker.MakeProgressTracker(1, 0)
	tr.Progress = progress
	tr.Config = tracker.Config{Voters: quorum.JointConfig{voters[0], voters[1]}, AutoLeave: r.conf.GetAutoLeave()}
	if ids := r.conf.GetLearners(); len(ids) > 0 {
		tr.Config.Learners = map[uint64]struct{}{}
		add(ids, true, tr.Config.Learners)
	}
	if ids := r.conf.GetLearnersNext(); len(ids) > 0 {
		tr.Config.LearnersNext = map[uint64]struct{}{}
		add(ids, false, tr.Config.LearnersNext)
	}
	changer, joint := confchange.Changer{Tracker: tr}, len(voters[1]) > 0
	switch {
	case cc.LeaveJoint():
		return joint
	case joint && len(cc.GetChanges()) == 0:
		return true // ApplyConfChange panics: checkChange must have refused it
	}
	known := slices.Collect(maps.Keys(raftpb.ConfChangeType_name))
	for _, c := range cc.GetChanges() {
		if !slices.Contains(known, int32(c.GetType())) {
			return true // as above
		}
	}
	var err error
	if autoLeave, ok := cc.EnterJoint(); ok {
		_, _, err = changer.EnterJoint(autoLeave, cc.GetChanges()...)
	} else {
		_, _, err = changer.Simple(cc.GetChanges()...)
	}
	return err == nil
}

// lastIndex returns the argument for ValidateAgainst.
func (r *rig) lastIndex() uint64 {
	last, err := r.storage.LastIndex()
	must(err)
	return last
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
