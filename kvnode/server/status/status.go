// Package status is a member's status as JSON: the response of GET /status, the response of the
// gRPC method leaderlease.kvnode.v1.Node/Status, and the output of kvnode status.
//
// Field names are stable; new ones may be added. Identifiers are hexadecimal strings, as etcdctl
// prints them. Durations are milliseconds with a fraction.
package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

// Report is the status of one member at one moment.
type Report struct {
	ID        string `json:"id"`
	ClusterID string `json:"cluster_id"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	// Role is leader, follower, candidate, pre_candidate or learner.
	Role string `json:"role"`
	Term uint64 `json:"term"`
	// Leader is empty if none is known.
	Leader string `json:"leader"`
	// Ready means that the member has served a linearizable read and published its client URLs since its start.
	Ready bool `json:"ready"`

	Lease   Lease   `json:"lease"`
	Promise Promise `json:"promise"`
	// Suspicions count how this member has suspected leaders.
	Suspicions Suspicions `json:"suspicions"`
	// Reads counts served reads by path, Refused failed lease checks by reason, both since the
	// start. Zero counts are left out.
	Reads   map[string]uint64 `json:"reads"`
	Refused map[string]uint64 `json:"refused"`
	// WaitingReads wait for a quorum round or for the state machine, WaitingProposals for their
	// entry to be applied.
	WaitingReads     int `json:"waiting_reads"`
	WaitingProposals int `json:"waiting_proposals"`

	Commit     uint64     `json:"commit"`
	Applied    uint64     `json:"applied"`
	LastIndex  uint64     `json:"last_index"`
	Revision   int64      `json:"revision"`
	Checkpoint Checkpoint `json:"checkpoint"`
	WAL        WAL        `json:"wal"`
	Clock      Clock      `json:"clock"`
	Peers      []Peer     `json:"peers"`
	// Awaited are the members that this one waits for: it takes part once enough of them have
	// admitted it.
	Awaited []string `json:"awaited,omitempty"`

	// ClusterVersion determines the features that the cluster may use. NewestClusterVersion is the
	// newest one that this member's version supports, and ClusterVersionKeptBy names the members
	// that prevent the upgrade to it.
	ClusterVersion       int64    `json:"format"`
	NewestClusterVersion int64    `json:"newest_format"`
	ClusterVersionKeptBy []string `json:"format_kept_by,omitempty"`

	// Replaying means that the member still applies its log since its start. Stale reads, watches
	// and hashes wait meanwhile.
	Replaying bool `json:"replaying"`
	// DiskFull means that writes are rejected until the disk has space.
	DiskFull bool `json:"disk_full"`
	// CheckpointError is why the last checkpoint failed, or empty.
	CheckpointError string `json:"checkpoint_error,omitempty"`
	// Alarms are the active alarms of all members.
	Alarms []Alarm `json:"alarms,omitempty"`
	// Error is why the member has failed, if it has.
	Error string `json:"error,omitempty"`
}

// Alarm is an active alarm of a member.
type Alarm struct {
	Type   string `json:"type"` // NOSPACE or CORRUPT
	Member string `json:"member"`
	Name   string `json:"name"`
}

// Lease is the leader's lease.
type Lease struct {
	// State is valid, or why reads are not served under the lease.
	State string `json:"state"`
	// RemainingMS is for how long lease reads are still served; then another leader
	// may exist. EndMS is until the promises of a quorum end.
	RemainingMS float64 `json:"remaining_ms"`
	EndMS       float64 `json:"end_ms"`
	// MarginMS is MaxClockSkew, the difference between the two.
	MarginMS     float64 `json:"margin_ms"`
	DurationMS   float64 `json:"duration_ms"`
	MaxPromiseMS float64 `json:"max_promise_ms"`
	// Error is the misuse that turned leases off, if any.
	Error string `json:"error,omitempty"`
}

// Promise is the voter's promise to a leader.
type Promise struct {
	Leader      string  `json:"leader"`
	Term        uint64  `json:"term"`
	RemainingMS float64 `json:"remaining_ms"`
	// RestartHoldMS is how long the member may not vote because of a restart or a step of its clock.
	RestartHoldMS float64 `json:"restart_hold_ms"`
}

// Suspicions are this member's suspicions of leaders, and the fail-overs that it has seen, since
// its start.
type Suspicions struct {
	// By counts suspicions by cause: hint (the leader's connections have ended), pre-vote
	// (another member suspects it), learnt-silence (it is silent for much longer than usual) or
	// obituary (its supervisor has reported its death). Zero counts are left out.
	By map[string]uint64 `json:"by"`
	// FalseAlarms counts suspicions that a later message of the leader has ended, Forgotten the
	// times that raft was told to forget a leader after the promise to it had ended.
	FalseAlarms uint64 `json:"false_alarms"`
	Forgotten   uint64 `json:"forgotten"`
	// SilenceLimitMS is the silence after which this member suspects the leader: the election
	// timeout until it has learned a shorter one, 0 if it leads or does not learn.
	SilenceLimitMS float64 `json:"silence_limit_ms"`
	// FailOvers counts replaced leaders by cause.
	FailOvers map[string]uint64 `json:"fail_overs"`
	// Last is the last fail-over, if there was one.
	Last *FailOver `json:"last,omitempty"`
}

// FailOver describes how a leader was replaced.
type FailOver struct {
	// Cause is the cause: silence, hint, pre-vote, learnt-silence, obituary, transfer or
	// resignation.
	Cause string `json:"began"`
	// DetectedMS is the time from the leader's last message to the suspicion, PromiseMS the remaining
	// promise of this member then, ElectionMS the time until the next leader was known, CommitMS
	// the time until its first commit.
	DetectedMS float64 `json:"hint_ms"`
	PromiseMS  float64 `json:"promise_ms"`
	ElectionMS float64 `json:"election_ms"`
	CommitMS   float64 `json:"commit_ms"`
}

// Checkpoint is the newest durable state.
type Checkpoint struct {
	Index    uint64 `json:"index"`
	Term     uint64 `json:"term"`
	Revision int64  `json:"revision"`
}

// WAL counts the log's work since the start.
type WAL struct {
	Syncs     uint64  `json:"syncs"`
	SyncAvgMS float64 `json:"sync_avg_ms"`
	SyncMaxMS float64 `json:"sync_max_ms"`
	Entries   uint64  `json:"entries"`
	Bytes     uint64  `json:"bytes"`
}

// Clock is the lease clock.
type Clock struct {
	Name          string `json:"name"`
	CountsSuspend bool   `json:"counts_suspend"`
	Warning       string `json:"warning,omitempty"`
}

// Peer is another member: the link to it and, on the leader, its promise.
type Peer struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Connected bool    `json:"connected"`
	RTTMS     float64 `json:"rtt_ms"`
	Sent      uint64  `json:"sent"`
	Lost      uint64  `json:"lost"`
	LastError string  `json:"last_error,omitempty"`
	// PromisedMS is the remaining time of its promise to this leader. ClockSuspect means that its
	// grants do not count, because its clock has drifted too much.
	PromisedMS   float64 `json:"promised_ms"`
	ClockSuspect bool    `json:"clock_suspect"`
}

// Of returns the report of a node's status. The caller sets Version, Ready and Revision.
func Of(s *kvnode.Status) Report {
	l := &s.Lease
	return Report{
		ID: ID(s.ID), ClusterID: ID(s.ClusterID), Name: s.Name,
		Role: role(s), Term: s.Term, Leader: ID(s.Leader),
		Lease: Lease{
			State: l.Status.String(), RemainingMS: ms(l.Remaining), EndMS: ms(l.EndsIn),
			MarginMS: ms(l.MaxClockSkew), DurationMS: ms(l.Duration), MaxPromiseMS: ms(l.MaxPromise),
			Error: text(l.Err),
		},
		Promise: Promise{
			Leader: ID(l.Promise.Leader), Term: l.Promise.Term,
			RemainingMS: ms(l.Promise.Remaining), RestartHoldMS: ms(l.Promise.Hold),
		},
		Suspicions:   suspicions(&s.Suspicions),
		Reads:        counts(s.LeaseStats.Reads[:], func(i int) string { return leaderlease.Path(i).String() }),
		Refused:      counts(s.LeaseStats.Refused[:], func(i int) string { return leaderlease.Status(i).String() }),
		WaitingReads: l.Waiting, WaitingProposals: s.Waiting,
		Commit: s.Commit, Applied: s.Applied, LastIndex: s.Last,
		Checkpoint: Checkpoint{Index: s.Checkpoint.Index, Term: s.Checkpoint.Term, Revision: s.Checkpoint.Revision},
		WAL: WAL{
			Syncs: s.WAL.Syncs, SyncAvgMS: average(s.WAL.SyncTime, s.WAL.Syncs), SyncMaxMS: ms(s.WAL.MaxSyncTime),
			Entries: s.WAL.Entries, Bytes: s.WAL.Bytes,
		},
		Clock:          Clock{Name: l.Clock.Name, CountsSuspend: l.Clock.CountsSuspend, Warning: l.Clock.Warning},
		Peers:          peers(s),
		Awaited:        s.Awaited,
		ClusterVersion: s.ClusterVersion, NewestClusterVersion: s.NewestClusterVersion, ClusterVersionKeptBy: s.ClusterVersionKeptBy,
		Replaying: s.Replaying, DiskFull: s.DiskFull, CheckpointError: text(s.CheckpointErr), Alarms: alarms(s),
		Error: text(s.Err),
	}
}

// Reword rewrites the errors in the report with spell. They include errors of other members about
// their own fields, which have the same names.
func (r *Report) Reword(spell func(text string) string) {
	for i := range r.Peers {
		r.Peers[i].LastError = spell(r.Peers[i].LastError)
	}
	r.Error, r.CheckpointError, r.Lease.Error = spell(r.Error), spell(r.CheckpointError), spell(r.Lease.Error)
}

func suspicions(s *detector.Stats) Suspicions {
	cause := func(i int) string { return detector.Cause(i).String() }
	all := Suspicions{
		By: counts(s.Suspicions[:], cause), FalseAlarms: s.FalseSuspicions, Forgotten: s.Forgets,
		FailOvers: counts(s.FailOvers[:], cause), SilenceLimitMS: ms(s.Limit),
	}
	if l := s.Last; l != (detector.FailOver{}) {
		all.Last = &FailOver{Cause: l.Cause.String(), DetectedMS: ms(l.Detection), PromiseMS: ms(l.Promise), ElectionMS: ms(l.Election), CommitMS: ms(l.Commit)}
	}
	return all
}

func alarms(s *kvnode.Status) (all []Alarm) {
	for _, m := range s.Alarms {
		all = append(all, Alarm{Type: m.GetAlarm().String(), Member: ID(m.GetMemberID()), Name: s.Names[m.GetMemberID()]})
	}
	return all
}

func peers(s *kvnode.Status) []Peer {
	promised := make(map[uint64]leaderlease.PeerInfo, len(s.Lease.Peers))
	for _, p := range s.Lease.Peers {
		promised[p.ID] = p
	}
	all := make([]Peer, 0, len(s.Peers))
	for i := range s.Peers {
		p := &s.Peers[i]
		all = append(all, Peer{
			ID: ID(p.ID), Name: cmp.Or(p.Hello.Name, s.Names[p.ID]), Connected: p.Connected, RTTMS: ms(p.RTT),
			Sent: p.Sent, Lost: p.Lost, LastError: p.LastError,
			PromisedMS: ms(promised[p.ID].Promised), ClockSuspect: promised[p.ID].ClockSuspect,
		})
	}
	return all
}

func role(s *kvnode.Status) string {
	if s.Learner {
		return "learner"
	}
	switch s.Lease.Role {
	case raft.StateLeader:
		return "leader"
	case raft.StateCandidate:
		return "candidate"
	case raft.StatePreCandidate:
		return "pre_candidate"
	default:
		return "follower"
	}
}

// ID formats the identifier of a member or a cluster. 0 is "".
func ID(id uint64) string {
	if id == 0 {
		return ""
	}
	return transport.ID(id)
}

func counts(values []uint64, name func(int) string) map[string]uint64 {
	m := make(map[string]uint64)
	for i, n := range values {
		if n > 0 {
			m[name(i)] = n
		}
	}
	return m
}

// ms rounds to microseconds, for readability.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func average(sum time.Duration, n uint64) float64 {
	if n == 0 {
		return 0
	}
	return ms(sum / time.Duration(n))
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The service is registered by hand. Its message is JSON in a BytesValue, so that Report
// is the only definition and needs no generated code.
const (
	service = "leaderlease.kvnode.v1.Node"

	// Method is the full name of the only method.
	Method = "/" + service + "/Status"
)

// reporter is implemented by *server.Server.
type reporter interface{ Report() Report }

// Register serves source's report.
func Register(s grpc.ServiceRegistrar, source reporter) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*reporter)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Status", Handler: handle}},
	}, source)
}

func handle(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // gRPC gives the order
	request := new(emptypb.Empty)
	if err := decode(request); err != nil {
		return nil, err
	}
	source, ok := srv.(reporter)
	if !ok {
		return nil, grpcstatus.Errorf(codes.Internal, "%T does not report", srv)
	}
	answer := func(context.Context, any) (any, error) {
		data, err := json.Marshal(source.Report())
		return wrapperspb.Bytes(data), err
	}
	if intercept == nil {
		return answer(ctx, request)
	}
	return intercept(ctx, request, &grpc.UnaryServerInfo{Server: srv, FullMethod: Method}, answer)
}

// Fetch returns the status of the member that conn connects to.
func Fetch(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) (Report, error) {
	answer := new(wrapperspb.BytesValue)
	if err := conn.Invoke(ctx, Method, new(emptypb.Empty), answer, opts...); err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(answer.GetValue(), &r); err != nil {
		return Report{}, fmt.Errorf("kvnode: the response of %s is not a status: %w", Method, err)
	}
	return r, nil
}
