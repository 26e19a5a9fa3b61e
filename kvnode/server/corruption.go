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
	// hashTime bounds the comparison of two members. Shorter: large stores are never
	// compared. Longer: a member that does not answer keeps the alarm for another one.
	hashTime = 30 * time.Second
	// restTime is how long a member that starts waits for the rest once most agree with
	// it, for clients wait meanwhile, and what its last try has at least.
	restTime = 2 * time.Second
	// tryInterval is between two tries at start.
	tryInterval = 200 * time.Millisecond
)

// ErrCorrupt means that a member's data is not what the others have made of the
// same log, so that it serves nobody.
var ErrCorrupt = errors.New("kvnode: this member's data differs from that of other members")

// checkedMember is what the checks for corruption need of a member. The server is
// one.
type checkedMember struct {
	log *slog.Logger
	dir string
	// all are the members, this one first.
	all func() []*hashcheck.Member
	// caughtUp reports whether what was committed at the start is applied.
	caughtUp func() bool
	leads    func() bool
	raised   func(id uint64) bool
	raise    func(ctx context.Context, id uint64) error
}

// openGate opens the serving gate once this member's data has been compared, if that
// was asked for. It returns false if the data differs.
func (s *Server) openGate() bool {
	if !s.gate.isClosed() {
		return true
	}
	// As long as etcd waits for each member.
	if err := s.checked().checkAtStart(s.streams, 5*time.Second+2*s.cfg.Node.ElectionTimeout); err != nil {
		s.fail(err)
		return false
	}
	s.gate.open()
	return true
}

// watchCorruption compares all members every so often, if that is asked for.
func (s *Server) watchCorruption() {
	every := s.cfg.CorruptCheckTime
	if d := s.cfg.CompactHashCheckTime; s.cfg.CompactHashCheck && (every == 0 || d < every) {
		every = d
	}
	if every > 0 {
		s.checked().watch(s.streams, every)
	}
}

func (s *Server) checked() *checkedMember {
	store, commit := s.node.Store(), s.node.Status().Commit
	return &checkedMember{
		log: s.log, dir: s.cfg.Node.DataDir, all: s.api.Hashers,
		caughtUp: func() bool { return store.Applied() >= commit },
		leads:    func() bool { return s.node.Leader() == s.node.ID() },
		raised: func(id uint64) bool {
			return slices.ContainsFunc(store.Alarms(), func(m *pb.AlarmMember) bool {
				return m.GetAlarm() == pb.AlarmType_CORRUPT && m.GetMemberID() == id
			})
		},
		raise: func(ctx context.Context, id uint64) error {
			r := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: id, Alarm: pb.AlarmType_CORRUPT}
			res, err := s.node.Propose(ctx, &pb.InternalRaftRequest{Alarm: r})
			return errors.Join(err, res.Err)
		},
	}
}

// checkAtStart compares this member with the others until it has been with all that
// answer, or patience ends. It fails if the data differs from that of any, unless
// most members agree with this one. A member that cannot be reached holds nobody up: a
// cluster that starts all at once does start.
func (m *checkedMember) checkAtStart(ctx context.Context, patience time.Duration) error {
	m.log.Info("comparing this member's data with the others' before it serves", "at_most", patience)
	for deadline := time.Now().Add(patience); ; {
		limit := max(restTime, time.Until(deadline))
		tryCtx, cancel := context.WithTimeout(ctx, limit)
		report := hashcheck.Judge(tryCtx, m.all(), hashcheck.Limits{Each: limit, Rest: restTime})
		cancel()
		decided := report.Right() != nil || len(report.Camps) == 1 && !report.Pending()
		if decided && m.caughtUp() || !time.Now().Before(deadline) {
			return m.startResult(report)
		}
		select {
		case <-ctx.Done():
			return nil // the server ends
		case <-time.After(tryInterval):
		}
	}
}

// startResult says what the last comparison at start means for this member, which is
// the first of those that were compared.
func (m *checkedMember) startResult(r *hashcheck.Report) error {
	for _, u := range r.Unknown {
		m.log.Warn("a member could not be compared with this one", "peer", u.Member.String(), "error", u.Err)
	}
	if len(r.Camps) == 1 {
		m.log.Info("this member's data is that of the others that could be compared", "agree", len(r.Camps[0]), "of", r.Members)
		return nil
	}
	for _, d := range r.Differences {
		m.log.Error("members hold different data", "what", d.String())
	}
	self := m.all()[0].ID
	if slices.ContainsFunc(r.Right(), func(x *hashcheck.Member) bool { return x.ID == self }) {
		m.log.Error("most members agree with this one, which goes on", "corrupt", names(r.Corrupt()), "remedy", replaceAdvice)
		return nil
	}
	advice := fmt.Sprintf("%s; its data directory is %s", replaceAdvice, m.dir)
	if r.Right() == nil {
		advice = "nobody knows whose data is right, since no more than half of all members agree: compare them (etcdctl endpoint hashkv --cluster), " +
			"then " + advice + "; or, if it is the other one, start this one without the check (InitialCorruptCheck)"
	}
	return fmt.Errorf("%w: %s; %s", ErrCorrupt, r.Differences[0], advice)
}

// replaceAdvice is what helps a member that differs.
const replaceAdvice = "remove the one that is wrong (etcdctl member remove), and add it anew with an empty data directory"

// watch compares all members every so often while this one leads, and raises the
// alarm for those that are corrupt.
func (m *checkedMember) watch(ctx context.Context, every time.Duration) {
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

// check compares all members once. One that is removed meanwhile, as the remedy says, counts no
// more: its alarm would stop writes anew, after it was disarmed.
func (m *checkedMember) check(ctx context.Context) {
	all := m.all()
	report := hashcheck.Judge(ctx, all, hashcheck.Limits{Each: hashTime, Rest: hashTime})
	for m.removed(all) {
		all = m.all()
		report = hashcheck.Judge(ctx, all, hashcheck.Limits{Each: hashTime, Rest: hashTime})
	}
	m.reportAndRaise(ctx, report)
}

// removed reports whether one of those is no member any more.
func (m *checkedMember) removed(those []*hashcheck.Member) bool {
	now := m.all()
	return slices.ContainsFunc(those, func(x *hashcheck.Member) bool {
		return !slices.ContainsFunc(now, func(y *hashcheck.Member) bool { return y.ID == x.ID })
	})
}

// reportAndRaise logs what the leader's comparison has found, and raises the alarms that do not stand.
func (m *checkedMember) reportAndRaise(ctx context.Context, report *hashcheck.Report) {
	for _, u := range report.Unknown {
		m.log.Info("a member could not be compared with the others", "peer", u.Member.String(), "error", u.Err)
	}
	if len(report.Camps) < 2 {
		return
	}
	for _, d := range report.Differences {
		m.log.Error("members hold different data", "what", d.String())
	}
	corrupt := report.Corrupt()
	if corrupt == nil {
		// As in etcd: an alarm of nobody stops writes, and leaves open who is wrong.
		corrupt = []*hashcheck.Member{{Name: "unknown"}}
	}
	for _, x := range corrupt {
		if m.raised(x.ID) {
			continue
		}
		m.log.Error("raising the alarm CORRUPT, which stops writes", "peer", x.String(), "remedy", replaceAdvice+", then etcdctl alarm disarm")
		if err := m.raise(ctx, x.ID); err != nil {
			m.log.Error("the alarm could not be raised", "peer", x.String(), "error", err)
		}
	}
}

func names(all []*hashcheck.Member) (names []string) {
	for _, m := range all {
		names = append(names, m.String())
	}
	return names
}
