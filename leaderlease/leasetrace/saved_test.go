package leasetrace_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/internal/hook"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// memory is a PromiseStore with saves that complete on wait.
type memory struct {
	longest time.Duration
	saves   []hook.Save
}

func (r *memory) LoadLongestPromise() (time.Duration, error) { return r.longest, nil }

func (r *memory) SaveLongestPromise(d time.Duration) error {
	r.longest = d
	return nil
}

// Run implements hook.Saver.
func (r *memory) Run(save hook.Save) { r.saves = append(r.saves, save) }

// wait completes all saves.
func (r *memory) wait() {
	for _, save := range r.saves {
		save()
	}
	r.saves = nil
}

// remembering returns a member that asks for 250 ms, promises up to 900 ms, and saves its promises.
func remembering(t *testing.T, id uint64, r *memory, term uint64, started time.Duration) *member {
	t.Helper()
	m := &member{t: t, id: id, clock: &hand{now: leaderlease.Instant(started)}, trace: leasetrace.New(1000)}
	storage := raft.NewMemoryStorage()
	if term > 0 {
		if err := storage.SetHardState(&raftpb.HardState{Term: new(term)}); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config(m, storage)
	cfg.Duration, cfg.MaxPromise, cfg.MaxClockSkew, cfg.TickInterval = 250*ms, 900*ms, 100*ms, 50*ms
	cfg.Raft.ElectionTick = 20
	cfg.Promises = r
	var err error
	if m.Lease, err = leaderlease.New(cfg); err != nil {
		t.Fatal(err)
	}
	return m
}

// upgraded has a leader that asks for 900 ms, a voter that asks for 250 ms itself, and the
// voter's next process. The saved promise rises in the first process, and falls when the
// restart hold of the second has ended. Only the first steps are run.
func upgraded(t *testing.T, disk *memory, steps int) []leasetrace.Process {
	t.Helper()
	leader, voter := newMember(t, 1, raft.NewMemoryStorage(), time.Hour), remembering(t, 2, disk, 0, 2*time.Hour)
	members := []*member{leader, voter}
	leader.becomes(raft.StateLeader, 2, 1)
	voter.becomes(raft.StateFollower, 2, 1)
	for _, step := range []func(){
		func() { leader.renews(voter) }, // refused, and saved meanwhile
		disk.wait,
		func() { leader.renews(voter) },
		func() {
			voter = remembering(t, 2, disk, 2, 3*time.Hour)
			members = append(members, voter)
			voter.clock.now = voter.clock.now.Add(890 * ms)
			voter.Tick()
		},
		func() { voter.Tick() },
		disk.wait,
	}[:steps] {
		leader.clock.now = leader.clock.now.Add(10 * ms)
		voter.clock.now = voter.clock.now.Add(10 * ms)
		step()
	}
	return traces(members...)
}

func TestAProcessHoldsForSavedPromises(t *testing.T) {
	for _, tc := range []struct {
		name        string
		steps       int
		hold, least time.Duration // what the next process holds for, and must
	}{
		{"a longer promise is about to be saved", 1, 250 * ms, 0},
		{"it is saved", 2, 900 * ms, 0},
		{"it is granted", 3, 900 * ms, 900 * ms},
		{"the next process holds for it", 4, 900 * ms, 900 * ms},
		{"that has ended, and a shorter one is about to be saved", 5, 900 * ms, 250 * ms},
		{"that is saved", 6, 250 * ms, 250 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			disk := &memory{}
			all := upgraded(t, disk, tc.steps)
			next := remembering(t, 2, disk, 2, 4*time.Hour)
			next.Tick()
			all = append(all, traces(next)...)
			if err := leasetrace.Judge(all).Err(); err != nil {
				t.Fatal(err)
			}
			before, last := &all[len(all)-2], &all[len(all)-1]
			if s := &last.Start; s.Hold != tc.hold || s.Saved != tc.hold {
				t.Errorf("it holds for %v of %v, want %v", s.Hold, s.Saved, tc.hold)
			}
			for _, hold := range []time.Duration{tc.least, tc.least - 1} {
				last.Start.Hold, last.Start.Saved, last.Start.Term = hold, hold, 0
				last.Events = last.Events[:1] // no view yet
				v := leasetrace.Judge(all)
				if refused := v.Refused != nil && strings.Contains(v.Refused.Error(), "its predecessor has granted up to"); refused != (hold < tc.least) {
					t.Errorf("it holds for %v: %v, want a refusal below %v", hold, v, tc.least)
				}
			}
			before.Ended = false // a shorter one may have been saved in what is missing
			last.Start.Hold = 250 * ms
			if v := leasetrace.Judge(all); v.Refused != nil && strings.Contains(v.Refused.Error(), "its predecessor") {
				t.Errorf("%v, want what is missing to be an excuse", v)
			}
		})
	}
}

// A recorder keeps only the newest events of a long-running process. The saved promise may
// have fallen in the lost events.
func TestTheSavedPromiseMayFallBeforeTheFirstEvent(t *testing.T) {
	disk := &memory{longest: 900 * ms}
	leader, voter := remembering(t, 1, &memory{}, 0, time.Hour), remembering(t, 2, disk, 2, 2*time.Hour)
	leader.becomes(raft.StateLeader, 2, 1)
	voter.becomes(raft.StateFollower, 2, 1)
	leader.renews(voter)
	voter.clock.now = voter.clock.now.Add(900 * ms)
	voter.Tick()
	disk.wait()
	leader.renews(voter)
	if disk.longest != 250*ms {
		t.Fatalf("%v is saved, want 250ms", disk.longest)
	}
	all := traces(leader, voter, remembering(t, 2, disk, 2, 3*time.Hour))
	grant := find(t, &all[1], leasetrace.KindGrant, 2)
	all[1].Events = all[1].Events[grant.Seq-1:]
	if v := leasetrace.Judge(all); v.Refused != nil {
		t.Errorf("%v, want a hold of what was saved to pass", v)
	}
}

func TestARestartHoldsForTheSavedPromise(t *testing.T) {
	next := traces(remembering(t, 2, &memory{longest: 900 * ms}, 2, time.Hour))
	next[0].Start.Hold = 250 * ms
	if v := leasetrace.Judge(next); v.Refused == nil || !strings.Contains(v.Refused.Error(), "it holds for 250ms after a restart in term 2, and may have granted 900ms") {
		t.Errorf("%v, want the hold to be too short", v)
	}
}

func TestChangedSavesAreRefused(t *testing.T) {
	const first, second = 1, 2
	at := func(process int, k leasetrace.Kind, change func(p *leasetrace.Process, e *leasetrace.Event)) func(*testing.T, []leasetrace.Process) {
		return func(t *testing.T, all []leasetrace.Process) { change(&all[process], find(t, &all[process], k, 1)) }
	}
	gone := func(p *leasetrace.Process, e *leasetrace.Event) { drop(p, e) }
	for _, tc := range []struct {
		name   string
		change func(*testing.T, []leasetrace.Process)
		want   string
	}{
		{"a longer promise before it is saved", at(first, leasetrace.KindSaved, gone), "the promise is made: true, want false"},
		{"a longer promise though saving it has failed", at(first, leasetrace.KindSaved, func(_ *leasetrace.Process, e *leasetrace.Event) { e.OK = false }), "the promise is made: true, want false"},
		{"a save without a beginning", at(first, leasetrace.KindSaving, gone), "without the event that begins to save it"},
		{"two saves at a time", at(first, leasetrace.KindSaved, func(p *leasetrace.Process, e *leasetrace.Event) {
			e.Kind, e.At = leasetrace.KindSaving, p.Events[e.Seq-2].At
		}), "is saved, while 900ms is"},
		{"another one is saved than was to be", at(first, leasetrace.KindSaved, func(_ *leasetrace.Process, e *leasetrace.Event) { e.Duration-- }), "the longest promise that is saved"},
		{"less is to be saved than a leader asks for", at(first, leasetrace.KindSaving, func(_ *leasetrace.Process, e *leasetrace.Event) { e.Duration-- }), "the longest promise to be saved"},
		{"it falls too early", func(_ *testing.T, all []leasetrace.Process) {
			at := slices.IndexFunc(all[second].Events, func(e leasetrace.Event) bool { return e.Kind == leasetrace.KindSaving })
			view, saving := &all[second].Events[at-1], &all[second].Events[at]
			saving.At, saving.Seq = saving.At-1, view.Seq
			view.Seq++
			*view, *saving = *saving, *view
		}, "and is due: false"},
		{"less was saved at the start", func(_ *testing.T, all []leasetrace.Process) { all[first].Start.Saved = 900 * ms }, "the promise is made: false, want true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := upgraded(t, &memory{}, 6)
			for i := range all {
				all[i].Events = slices.Clone(all[i].Events)
			}
			tc.change(t, all)
			if v := leasetrace.Judge(all); v.Refused == nil || !strings.Contains(v.Refused.Error(), tc.want) {
				t.Errorf("%v, want a refusal that says %q", v, tc.want)
			}
		})
	}
}
