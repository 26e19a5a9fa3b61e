package kvnode

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/leaderlease/go/raftwal/fs"
)

// seedSteps is how many faults a schedule has, ends of faults included.
const seedSteps = 20

// seedDisk makes the disk of a member's log slow or full. It stays with the member
// where processes come and go.
type seedDisk struct {
	usual time.Duration // of a sync
	slow  atomic.Int64  // more of it
	full  atomic.Bool
}

func (d *seedDisk) hook(m *fs.Memory) *fs.Memory {
	m.SetHook(func(op fs.Op) *fs.Fault {
		switch {
		case op.Kind == fs.OpSync:
			time.Sleep(d.usual + time.Duration(d.slow.Load()))
		case d.full.Load() && (op.Kind == fs.OpWrite || op.Kind == fs.OpCreate):
			return &fs.Fault{Err: syscall.ENOSPC}
		}
		return nil
	})
	return m
}

func (d *seedDisk) mend() {
	d.slow.Store(0)
	d.full.Store(false)
}

func (r *seedRun) say(format string, args ...any) {
	fmt.Fprintf(&r.log, "%v %s\n", time.Since(r.began), fmt.Sprintf(format, args...))
}

// step does one fault to member i, or to its line to member j, or ends some.
func (r *seedRun) step() {
	i := r.random.IntN(len(r.members))
	j := (i + 1 + r.random.IntN(len(r.members)-1)) % len(r.members)
	long := time.Duration(1_000+r.random.IntN(200_000)) * time.Microsecond
	a, b := r.members[i], r.members[j]
	switch kind := r.random.IntN(20); kind {
	case 0:
		r.say("cut %s %s", a, b)
		r.net.Cut(a, b)
	case 1:
		r.say("cut %s to %s", a, b)
		r.net.CutOneWay(a, b)
	case 2, 3:
		r.say("isolate %s", a)
		r.net.Isolate(a)
	case 4:
		r.say("isolate the leader")
		if l := r.anyLeader(); l != nil {
			r.net.Isolate(l.Name())
		}
	case 5, 6, 7:
		r.say("heal lines")
		r.HealAll()
	case 8:
		r.say("delay %s %s %v", a, b, long)
		r.net.Delay(a, b, long)
	case 9:
		r.say("slow disk %s %v", a, long)
		r.disks[i].slow.Store(int64(long))
	case 10:
		r.say("full disk %s", a)
		r.disks[i].full.Store(true)
	case 11, 12:
		r.say("mend disks")
		for _, d := range r.disks {
			d.mend()
		}
	case 13, 14:
		r.transfer(i, j)
	default:
		r.dieOrStart(kind, i, j)
	}
}

func (r *seedRun) dieOrStart(kind, i, j int) {
	switch kind {
	case 15:
		r.die("kill", (*fs.Memory).EndProcess, i)
	case 16:
		r.die("power", r.powerFails(), i)
	case 17:
		r.die("power", r.powerFails(), i, j, len(r.members)-i-j)
	default:
		for k := range r.members {
			r.restart(k)
		}
	}
}

// powerFails leaves of what was not synced any part.
func (r *seedRun) powerFails() func(*fs.Memory) *fs.Memory {
	random := rand.New(rand.NewPCG(r.random.Uint64(), 0))
	return func(m *fs.Memory) *fs.Memory { return m.Crash(fs.Something, random) }
}

func (r *seedRun) die(how string, left func(*fs.Memory) *fs.Memory, members ...int) {
	var dying []*Node
	for _, i := range members {
		if n := r.nodes[r.members[i]]; n != nil {
			r.say("%s %s", how, n.Name())
			dying = append(dying, n)
		}
	}
	r.end(dying, left)
	for _, i := range members {
		r.running[i].Store(nil)
	}
}

func (r *seedRun) restart(i int) {
	m := r.members[i]
	if r.nodes[m] != nil {
		return
	}
	if disk, ok := r.cfgs[m].walFS.(*fs.Memory); ok {
		r.disks[i].hook(disk)
	}
	n, err := r.tryStart(m)
	r.say("start %s: %v", m, err == nil)
	if err == nil {
		r.running[i].Store(n)
	} else if !r.disks[i].full.Load() { // a torn end of the log is written again, which takes room
		r.t.Errorf("%s does not start: %v", m, err)
	}
}

// transfer asks the leader, or member i without one, to transfer leadership to j.
func (r *seedRun) transfer(i, j int) {
	from := r.anyLeader()
	to := r.nodes[r.members[j]]
	if from == nil || to == nil {
		return
	}
	r.say("transfer %s %s, asked by %d", from.Name(), to.Name(), i+1)
	r.asked.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = from.MoveLeader(ctx, to.ID()) // which may fail as it likes
	})
}

// anyLeader returns the first member that believes to lead.
func (r *seedRun) anyLeader() *Node {
	for _, m := range r.members {
		if n := r.nodes[m]; n != nil && n.Leader() == n.ID() {
			return n
		}
	}
	return nil
}

// restoreLines gives each line the time that it takes without a fault.
func (r *seedRun) restoreLines() {
	for i, a := range r.members {
		for j, b := range r.members[:i] {
			r.net.Delay(a, b, time.Duration(500+137*i+61*j)*time.Microsecond)
		}
	}
}
