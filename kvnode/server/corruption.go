package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/hashcheck"
)

const (
	// hashTime limits the comparison of two members. With a shorter time, large stores are never
	// compared. With a longer one, a member that does not answer delays the alarm for another.
	hashTime = 30 * time.Second
	// restTime is how long a starting member waits for the remaining members once a majority agrees. It is short,
	// because clients wait meanwhile. It is also the minimum time limit of an attempt.
	restTime = 2 * time.Second
	// tryInterval is the time between two attempts at start.
	tryInterval = 200 * time.Millisecond
)

// ErrCorrupt means that a member's data differs from what the other members have applied from the
// same log. The member then serves no requests.
var ErrCorrupt = errors.New("kvnode: this member's data differs from that of other members")

// hashChecker makes this member's corruption checks. The server creates it.
type hashChecker struct {
	log *slog.Logger
	dir string
	// all returns the members, this one first.
	all func() []*hashcheck.Member
	// caughtUp reports whether this member has applied everything that was committed at its
	// start.
	caughtUp func() bool
	leads    func() bool
	raised   func(id uint64) bool
	raise    func(ctx context.Context, id uint64) error
}

// openGate opens the serving gate after this member's data was compared, if the gate is closed.
// It returns false if the data differs.
func (s *Server) openGate() bool {
	if !s.gate.isClosed() {
		return true
	}
	// The timeout is etcd's for each member.
	if err := s.hashChecker().checkAtStart(s.streams, 5*time.Second+2*s.cfg.Node.ElectionTimeout); err != nil {
		s.fail(err)
		return false
	}
	s.gate.open()
	return true
}

// watchCorruption compares all members at intervals, if configured.
func (s *Server) watchCorruption() {
	every := s.cfg.CorruptCheckTime
	if d := s.cfg.CompactHashCheckTime; s.cfg.CompactHashCheck && (every == 0 || d < every) {
		every = d
	}
	if every > 0 {
		s.hashChecker().watch(s.streams, every)
	}
}

func (s *Server) hashChecker() *hashChecker {
	store, commit := s.node.Store(), s.node.Status().Commit
	return &hashChecker{
		log: s.log, dir: s.cfg.Node.DataDir, all: s.api.Hashers,
		caughtUp: func() bool { return store.Applied() >= commit },
		leads:    func() bool { return s.node.Leader() == s.node.ID() },
		raised:   func(id uint64) bool { return store.AlarmRaised(pb.AlarmType_CORRUPT, id) },
		raise: func(ctx context.Context, id uint64) error {
			r := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: id, Alarm: pb.AlarmType_CORRUPT}
			res, err := s.node.Propose(ctx, &pb.InternalRaftRequest{Alarm: r})
			return errors.Join(err, res.Err)
		},
	}
}

// checkAtStart compares this member with the others until the result is clear, or timeout has passed. It fails if
// another member's data differs, unless a majority agrees with this member. A member that does not answer does not
// prevent the start, so that all members of a cluster can start at once.
func (m *hashChecker) checkAtStart(ctx context.Context, timeout time.Duration) error {
	m.log.Info("comparing this member's data with the others' before it serves", "at_most", timeout)
	for deadline := time.Now().Add(timeout); ; {
		limit := max(restTime, time.Until(deadline))
		tryCtx, cancel := context.WithTimeout(ctx, limit)
		report := hashcheck.Compare(tryCtx, m.all(), hashcheck.Limits{Each: limit, Rest: restTime})
		cancel()
		decided := report.Majority() != nil || len(report.Groups) == 1 && !report.Pending()
		if decided && m.caughtUp() || !time.Now().Before(deadline) {
			return m.startResult(report)
		}
		select {
		case <-ctx.Done():
			return nil // the server stops
		case <-time.After(tryInterval):
		}
	}
}

// startResult turns the last comparison at start into an error, or nil if this member may serve.
func (m *hashChecker) startResult(r *hashcheck.Report) error {
	for _, u := range r.Unknown {
		m.log.Warn("a member could not be compared with this one", "peer", u.Member.String(), "error", u.Err)
	}
	if len(r.Groups) == 1 {
		m.log.Info("no difference to the members that could be compared", "agree", len(r.Groups[0]), "of", r.Members)
		return nil
	}
	for _, d := range r.Differences {
		m.log.Error("members hold different data", "what", d.String())
	}
	self := m.all()[0].ID
	if slices.ContainsFunc(r.Majority(), func(x *hashcheck.Member) bool { return x.ID == self }) {
		m.log.Error("a majority agrees with this member, which continues", "corrupt", names(r.Corrupt()), "remedy", replaceAdvice)
		return nil
	}
	advice := fmt.Sprintf("%s; the data directory of this member is %s", replaceAdvice, m.dir)
	if r.Majority() == nil {
		advice = "no majority of the members agrees, so it is unknown which data is right: compare the members (etcdctl endpoint hashkv --cluster), " +
			"then " + advice + "; or, if another member is wrong, start this one without the check (InitialCorruptCheck)"
	}
	return fmt.Errorf("%w: %s; %s", ErrCorrupt, r.Differences[0], advice)
}

// replaceAdvice tells how to repair a member that differs.
const replaceAdvice = "remove the wrong member (etcdctl member remove), and add it again with an empty data directory"

// watch compares all members at intervals while this member leads, and raises the alarm for
// corrupt ones.
func (m *hashChecker) watch(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if m.leads() {
			m.check(ctx)
		}
	}
}

// check compares all members once. If an operator has removed a member meanwhile, as replaceAdvice says, check
// compares the others again. Otherwise it could raise the alarm for the removed member after the operator has
// disarmed it.
func (m *hashChecker) check(ctx context.Context) {
	all := m.all()
	report := hashcheck.Compare(ctx, all, hashcheck.Limits{Each: hashTime, Rest: hashTime})
	for m.removed(all) {
		all = m.all()
		report = hashcheck.Compare(ctx, all, hashcheck.Limits{Each: hashTime, Rest: hashTime})
	}
	m.reportAndRaise(ctx, report)
}

// removed reports whether any of members was removed from the cluster.
func (m *hashChecker) removed(members []*hashcheck.Member) bool {
	now := m.all()
	return slices.ContainsFunc(members, func(x *hashcheck.Member) bool {
		return !slices.ContainsFunc(now, func(y *hashcheck.Member) bool { return y.ID == x.ID })
	})
}

// reportAndRaise logs the leader's comparison, and raises the alarms that are not raised yet.
func (m *hashChecker) reportAndRaise(ctx context.Context, report *hashcheck.Report) {
	for _, u := range report.Unknown {
		m.log.Info("a member could not be compared with the others", "peer", u.Member.String(), "error", u.Err)
	}
	if len(report.Groups) < 2 {
		return
	}
	for _, d := range report.Differences {
		m.log.Error("members hold different data", "what", d.String())
	}
	corrupt := report.Corrupt()
	if corrupt == nil {
		// As in etcd, an alarm without a member stops writes if it is unknown which member
		// is wrong.
		corrupt = []*hashcheck.Member{{Name: "unknown"}}
	}
	for _, x := range corrupt {
		if m.raised(x.ID) {
			continue
		}
		m.log.Error("raising the alarm CORRUPT, which stops writes", "peer", x.String(), "remedy", replaceAdvice+", then etcdctl alarm disarm")
		if err := m.raise(ctx, x.ID); err != nil {
			m.log.Error("cannot raise the alarm", "peer", x.String(), "error", err)
		}
	}
}

func names(all []*hashcheck.Member) (names []string) {
	for _, m := range all {
		names = append(names, m.String())
	}
	return names
}
