package kvnode

import (
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/detector"
)

// When this member takes its leader for dead and campaigns, package detector decides. Here
// is what it is told, and what is done then. All of that is in the loop.

// newDetector is called before the loop runs.
func (l *raftLoop) newDetector() *detector.Detector {
	return detector.New(detector.Config{
		Self: l.ID(), Fresh: l.boot > 0, ElectionTicks: l.cfg.electionTicks(),
		Heartbeat: l.cfg.TickInterval, ElectionTimeout: l.cfg.ElectionTimeout,
	}, time.Now())
}

// standing is what decides at this moment whether the member campaigns.
func (l *raftLoop) standing() detector.Known {
	role := l.role
	k := detector.Known{
		Leads: role == raft.StateLeader, Candidate: role == raft.StateCandidate,
		Away: !l.admission.IsOpen() || l.store.Applied() < l.boot,
	}
	if !k.Leads && !k.Away {
		k.Voters, k.Bound = l.store.Members().Voters(), l.lease.MayCampaign() != nil
	}
	return k
}

// elect does what was decided.
func (l *raftLoop) elect(do detector.Decision) {
	if do.Forget {
		_ = l.raw.ForgetLeader() // a follower can, and whoever is none has forgotten it
	}
	if do.Campaign {
		// Raft refuses while a configuration change waits to be applied, and asks
		// again by itself after its own timeout.
		_ = l.raw.Campaign()
	}
}
