// Package status is a member's status as JSON: what GET /status answers, what
// the gRPC method leaderlease.kvnode.v1.Node/Status returns, and what kvnode
// status prints.
//
// The names of fields are stable; new ones may be added. Identifiers are
// hexadecimal strings, as etcdctl prints them. Durations are milliseconds, with
// a fraction.
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
	// Ready means that a linearizable read has been served since the start.
	Ready bool `json:"ready"`

	Lease   Lease   `json:"lease"`
	Promise Promise `json:"promise"`
	// Suspicions are what this member has suspected its leaders of.
	Suspicions Suspicions `json:"suspicions"`
	// Reads counts served reads by path, Refused failed lease checks by reason,
	// both since the start; what is zero is left out.
	Reads   map[string]uint64 `json:"reads"`
	Refused map[string]uint64 `json:"refused"`
	// WaitingReads wait for a round or for the state machine, WaitingProposals
	// for their entry to be applied.
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
	// Awaited are members of which some must let this one in before it takes part.
	Awaited []string `json:"awaited,omitempty"`

	// Format is what the whole cluster may use, NewestFormat what this version knows,
	// and FormatKeptBy the members because of which the former is not the latter.
	Format       int64    `json:"format"`
	NewestFormat int64    `json:"newest_format"`
	FormatKeptBy []string `json:"format_kept_by,omitempty"`

	// Replaying means that the member, since its start, still applies its log, and that
	// what it answers by itself waits: stale reads, watches, hashes.
	Replaying bool `json:"replaying"`
	// DiskFull means that writes are refused until there is room.
	DiskFull bool `json:"disk_full"`
	// CheckpointError is why the newest checkpoint could not be made, empty if it was.
	CheckpointError string `json:"checkpoint_error,omitempty"`
	// Alarms are those that are raised, of all members.
	Alarms []Alarm `json:"alarms,omitempty"`
	// Error is why the member has failed, if it has.
	Error string `json:"error,omitempty"`
}

// Alarm is one that a member has raised.
type Alarm struct {
	Type   string `json:"type"` // NOSPACE or CORRUPT
	Member string `json:"member"`
	Name   string `json:"name"`
}

// Lease is the leader's half.
type Lease struct {
	// State is valid, or why no read is served under the lease.
	State string `json:"state"`
	// RemainingMS is for how long lease reads are still served, EndMS until
	// another leader may exist.
	RemainingMS float64 `json:"remaining_ms"`
	EndMS       float64 `json:"end_ms"`
	// MarginMS is MaxClockSkew: what lies between the two.
	MarginMS     float64 `json:"margin_ms"`
	DurationMS   float64 `json:"duration_ms"`
	MaxPromiseMS float64 `json:"max_promise_ms"`
	// Error is the misuse that turned leases off, if any.
	Error string `json:"error,omitempty"`
}

// Promise is the voter's half: what the member owes to a leader.
type Promise struct {
	Leader      string  `json:"leader"`
	Term        uint64  `json:"term"`
	RemainingMS float64 `json:"remaining_ms"`
	// RestartHoldMS is for how long it is bound by its restart.
	RestartHoldMS float64 `json:"restart_hold_ms"`
}

// Suspicions are those of leaders, and how they were replaced, as this member has seen it
// since its start.
type Suspicions struct {
	// By counts them by what they began with, hint (the leader's connections have ended),
	// pre-vote (another member suspects it), learnt-silence (it is silent for much longer
	// than it has been of late) or obituary (its guardian says that it is dead); what is zero is left out.
	By map[string]uint64 `json:"by"`
	// FalseAlarms counts those that a sign of life has ended, Forgotten how often the leader
	// was to be forgotten since the promise to it had ended.
	FalseAlarms uint64 `json:"false_alarms"`
	Forgotten   uint64 `json:"forgotten"`
	// SilenceLimitMS is the silence that this member takes for the leader's end: the election
	// timeout until it has learnt better, 0 if it leads or does not learn.
	SilenceLimitMS float64 `json:"silence_limit_ms"`
	// FailOvers counts how leaders were replaced, by what it began with.
	FailOvers map[string]uint64 `json:"fail_overs"`
	// Last is the last time that another leader was found, none if there was none.
	Last *FailOver `json:"last,omitempty"`
}

// FailOver is how one leader was replaced by another.
type FailOver struct {
	// Began is what it began with: silence, hint, pre-vote, learnt-silence, obituary, transfer
	// or resignation.
	Began string `json:"began"`
	// HintMS is how long after the leader's last sign of life the suspicion began, PromiseMS
	// for how long the promise bound this member then, ElectionMS how long it took until the
	// next leader was known, CommitMS until something was committed then.
	HintMS     float64 `json:"hint_ms"`
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

// WAL is what the log has done since the start.
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

// Peer is another member: the link to it, and on the leader what it promises.
type Peer struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Connected bool    `json:"connected"`
	RTTMS     float64 `json:"rtt_ms"`
	Sent      uint64  `json:"sent"`
	Lost      uint64  `json:"lost"`
	LastError string  `json:"last_error,omitempty"`
	// PromisedMS is for how long its promise to this leader lasts. ClockSuspect
	// means that its grants do not count.
	PromisedMS   float64 `json:"promised_ms"`
	ClockSuspect bool    `json:"clock_suspect"`
}

// Of returns the report of a node's status. The caller fills in Version, Ready
// and Revision.
func Of(s *kvnode.Status) Report {
	l := &s.Lease
	r := Report{
		ID: ID(s.ID), ClusterID: ID(s.ClusterID), Name: s.Name,
		Role: role(s), Term: s.Term, Leader: ID(s.Leader),
		Lease: Lease{
			State: l.Status.String(), RemainingMS: ms(l.Remaining), EndMS: ms(l.End),
			MarginMS: ms(l.MaxClockSkew), DurationMS: ms(l.Duration), MaxPromiseMS: ms(l.MaxPromise),
			Error: text(l.Err),
		},
		Promise: Promise{
			Leader: ID(l.Promise.Leader), Term: l.Promise.Term,
			RemainingMS: ms(l.Promise.Remaining), RestartHoldMS: ms(l.Promise.Hold),
		},
		Suspicions:   suspicions(&s.Suspicions),
		Reads:        counts(s.Stats.Reads[:], func(i int) string { return leaderlease.Path(i).String() }),
		Refused:      counts(s.Stats.Refused[:], func(i int) string { return leaderlease.Status(i).String() }),
		WaitingReads: l.Waiting, WaitingProposals: s.Waiting,
		Commit: s.Commit, Applied: s.Applied, LastIndex: s.Last,
		Checkpoint: Checkpoint{Index: s.Checkpoint.Index, Term: s.Checkpoint.Term, Revision: s.Checkpoint.Revision},
		WAL: WAL{
			Syncs: s.WAL.Syncs, SyncAvgMS: average(s.WAL.SyncTime, s.WAL.Syncs), SyncMaxMS: ms(s.WAL.MaxSyncTime),
			Entries: s.WAL.Entries, Bytes: s.WAL.Bytes,
		},
		Clock:   Clock{Name: l.Clock.Name, CountsSuspend: l.Clock.CountsSuspend, Warning: l.Clock.Warning},
		Peers:   peers(s),
		Awaited: s.Awaited,
		Format:  s.Format, NewestFormat: s.NewestFormat, FormatKeptBy: s.FormatKeptBy,
		Replaying: s.Replaying, DiskFull: s.DiskFull, CheckpointError: text(s.CheckpointErr), Alarms: alarms(s),
		Error: text(s.Err),
	}
	return r
}

// Reword has spell put each error in the report into other words. What a peer has answered
// is among them: it names its own fields, which are this member's, too.
func (r *Report) Reword(spell func(text string) string) {
	for i := range r.Peers {
		r.Peers[i].LastError = spell(r.Peers[i].LastError)
	}
	r.Error, r.CheckpointError, r.Lease.Error = spell(r.Error), spell(r.CheckpointError), spell(r.Lease.Error)
}

func suspicions(s *detector.Stats) Suspicions {
	way := func(i int) string { return detector.Way(i).String() }
	all := Suspicions{
		By: counts(s.Hints[:], way), FalseAlarms: s.FalseAlarms, Forgotten: s.Forgets,
		FailOvers: counts(s.FailOvers[:], way), SilenceLimitMS: ms(s.Limit),
	}
	if l := s.Last; l != (detector.FailOver{}) {
		all.Last = &FailOver{Began: l.Way.String(), HintMS: ms(l.Hint), PromiseMS: ms(l.Promise), ElectionMS: ms(l.Election), CommitMS: ms(l.Commit)}
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

// ID formats a member's or a cluster's identifier; 0, which nothing has, is "".
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

// ms rounds to a microsecond: what is below says nothing, and is ugly to read.
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

// service is registered by hand: the message is JSON in a BytesValue, so that
// the Report is defined in one place and needs no stubs.
const (
	service = "leaderlease.kvnode.v1.Node"

	// Method is the full name of the only method.
	Method = "/" + service + "/Status"
)

// reporter is what the service asks.
type reporter interface{ Report() Report }

// Register serves what source reports.
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

// Fetch asks the member that conn leads to.
func Fetch(ctx context.Context, conn grpc.ClientConnInterface, opts ...grpc.CallOption) (Report, error) {
	answer := new(wrapperspb.BytesValue)
	if err := conn.Invoke(ctx, Method, new(emptypb.Empty), answer, opts...); err != nil {
		return Report{}, err
	}
	var r Report
	if err := json.Unmarshal(answer.GetValue(), &r); err != nil {
		return Report{}, fmt.Errorf("kvnode: the answer of %s is not a status: %w", Method, err)
	}
	return r, nil
}
