package kvnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/durations"
	"github.com/leaderlease/go/kvnode/internal/checkpoint"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/membership"
	"github.com/leaderlease/go/kvnode/internal/proposals"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
	"github.com/leaderlease/go/kvnode/internal/store/watch"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/raftwal"
	"github.com/leaderlease/go/raftwal/fs"
)

// Start opens or creates the data directory of cfg, and joins the cluster. It returns before there is a
// leader. If it fails, it closes the listener.
func Start(cfg Config) (n *Node, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, errors.Join(err, closeIf(cfg.Listener))
	}
	cfg.secure()
	n = newNode(cfg)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("kvnode: start member %q: %w", cfg.Name, err), closeFiles(n), closeIf(cfg.Listener))
			n = nil
		}
	}()
	if err := openFiles(n); err != nil {
		return n, err
	}
	newComponents(n)
	if !n.fresh {
		if err := n.checkpoints.Reconcile(); err != nil {
			return n, err
		}
	}
	raw, bootstrapEntries, err := openRaft(n)
	if err != nil {
		return n, err
	}
	err = connectAndRun(n, raw, bootstrapEntries)
	return n, err
}

func closeIf(c interface{ Close() error }) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

func newNode(cfg Config) *Node {
	cfg.Logger = cfg.Logger.With("member", cfg.Name)
	n := &Node{begun: make(chan struct{})}
	n.cfg, n.log, n.watch = cfg, cfg.Logger.With("component", "kvnode"), watch.New()
	n.life = lifecycle.New(n.log)
	n.leadership = newLeadership()
	return n
}

// newComponents makes the components that need only the files. The lease and the transport do not exist yet: the
// functions below use them only later.
func newComponents(n *Node) {
	n.calls.stopping, n.calls.Wakeup = n.life.Stopping(), lifecycle.NewWakeup()
	n.disk = checkpoint.NewDisk(checkpoint.DiskConfig{
		Dir: n.cfg.DataDir, SegmentSize: n.cfg.SegmentSize, Log: n.wal, StallTicks: n.cfg.electionTicks(),
		OnStall: func(stalled bool) { n.lease.SetDiskStalled(stalled) }, Lifecycle: n.life, Logger: n.log,
	})
	n.proposals = proposals.NewPending(proposals.Config{
		MaxRequestBytes: n.cfg.MaxRequestBytes, MaxCount: n.cfg.MaxProposals, MaxBytes: n.cfg.MaxProposalBytes,
		ElectionTicks: n.cfg.electionTicks(), Leadership: n.leadership, Bound: n.cfg.bounded, DiskFull: n.disk.IsFull,
		Lifecycle: n.life, Wakeup: n.calls.Wakeup, Logger: n.log,
	})
	n.received = checkpoint.NewReceived(checkpoint.ReceivedConfig{
		Dir: n.cfg.dir().Snaps(), Store: n.store, OnReceive: n.proposals.SnapshotArriving, PeerName: n.members.Label, Logger: n.log,
	})
	n.checkpoints = checkpoint.New(checkpoint.Config{
		Self: n.ID(), Log: n.wal, Store: n.store, Disk: n.disk, Received: n.received, Loop: checkpointLoop{&n.calls}, Lifecycle: n.life, Logger: n.log,
		SnapshotCount: n.cfg.SnapshotCount, CatchUpEntries: n.cfg.CatchUpEntries, CatchUpBytes: n.cfg.CatchUpBytes,
		RaftApplied: n.raftApplied.Load, Connected: func() map[uint64]bool { return connected(n.links) },
	})
	n.snapshots = checkpoint.NewSender(checkpoint.SenderConfig{
		Checkpointer: n.checkpoints, PeerName: n.members.Label, Lifecycle: n.life, Logger: n.log,
		SendSnapshot: func(m *raftpb.Message, state store.Snapshot) { n.links.SendSnapshot(m, state) },
	})
}

// beginReplay makes the replay, for which serializable reads wait.
func beginReplay(n *Node) {
	n.replay = &replay{
		self: n.ID(), commit: n.atStart.Commit, last: n.atStart.Last,
		patience: replayPatience * n.cfg.ElectionTimeout, patienceTicks: replayPatience * n.cfg.electionTicks(),
		log: n.wal, store: n.store, leadership: n.leadership, life: n.life, logger: n.log,
	}
	n.replay.begin()
}

// newNetworkComponents makes the components that use the lease and the transport.
func newNetworkComponents(n *Node, raw *raft.RawNode, bootstrapEntries uint64) {
	wake := n.calls.Wakeup
	jobs := &lifecycle.Mailbox[applyJob]{Wakeup: lifecycle.NewWakeup()}
	local := &lifecycle.Mailbox[*raftpb.Message]{Wakeup: wake}
	invalid := &invalidEntries{log: n.log, logged: newLogLimit()}
	beginReplay(n)
	openMembership(n)
	n.reads = &reads{
		cfg: &n.cfg, lease: n.lease, store: n.store, links: n.links, leadership: n.leadership, proposals: n.proposals,
		replay: n.replay, life: n.life,
	}
	n.transfers = &transfers{
		cfg: &n.cfg, self: n.ID(), store: n.store, lease: n.lease, links: n.links, leadership: n.leadership, calls: &n.calls,
		life: n.life, log: n.log, logLimit: &n.logLimits.disk,
	}
	n.publication = &publication{
		self:    store.Member{ID: n.ID(), Name: n.cfg.Name, ClientURLs: n.cfg.ClientURLs, Instance: n.id.Instance},
		timeout: n.cfg.ElectionTimeout, advice: n.cfg.adviceReplace(n.ID()), store: n.store, proposals: n.proposals, life: n.life,
		done: make(chan struct{}),
	}
	n.versions = &versionUpgrade{
		self: n.ID(), newest: n.cfg.newestClusterVersion, store: n.store, links: n.links, members: n.members, leadership: n.leadership,
		proposals: n.proposals, life: n.life, log: n.log,
	}
	n.applier = &applier{
		self: n.ID(), newestClusterVersion: n.cfg.newestClusterVersion, store: n.store, lease: n.lease, members: n.members, calls: &n.calls,
		proposals: n.proposals, replay: n.replay, received: n.received, checkpoints: n.checkpoints, disk: n.disk,
		routes: n.membership.routes, times: newApplyTimes(n.cfg.WarnApply, n.log), invalid: invalid, local: local, life: n.life, log: n.log,
		progress: newProgress(), jobs: jobs,
	}
	n.ttl = newTTL(&n.cfg, n.store, ttlMember{n.leadership, n.lease, n.proposals, n.disk.IsStalled})
	writer := &logWriter{
		self: n.ID(), appender: raftwal.NewAppender(n.wal, n.disk.WaitToRetry), disk: n.disk, links: n.links, jobs: jobs, local: local,
		life: n.life, markStarted: func() bool {
			return n.id.Started || saveIdentity(n, func(id *memberdir.Identity) { id.Started = true }) // no other goroutine sets it
		},
	}
	n.loop = &raftLoop{
		cfg: &n.cfg, self: n.ID(), store: n.store, lease: n.lease, links: n.links, members: n.members, leadership: n.leadership,
		last: &n.last, raftApplied: &n.raftApplied, calls: &n.calls, life: n.life, log: n.log, logLimits: &n.logLimits,
		proposals: n.proposals, writer: writer, jobs: jobs, snapshots: n.snapshots, transfers: n.transfers,
		invalid: invalid, rollback: n.membership.rollback, dataLoss: n.membership.dataLoss, admission: newOwnAdmission(n),
		raw: raw, bootstrapEntries: bootstrapEntries, wake: wake, local: local,
		control: make(chan *raftpb.Message, 1024), bulk: make(chan *raftpb.Message, 256),
		quota: proposals.NewQuota(n.cfg.maxUncommitted), late: durations.New(lateBounds), progress: newProgress(),
		resigned: make(chan struct{}), pollTimer: time.NewTimer(time.Hour),
	}
	n.loop.begin()
}

func openFiles(n *Node) (err error) {
	// The lock comes first: two processes on an empty directory would each write an identity.
	if n.lock, err = n.cfg.dir().Lock(); err != nil {
		return err
	}
	n.cfg.warnOfWriters()
	if n.id, err = openIdentity(&n.cfg); err != nil {
		return err
	}
	// A former process may have crashed between a rename and the sync of the directory, so DataDir and
	// its parent are synced before the log is opened (fs.MakeDir syncs the parent).
	if err := errors.Join(fs.MakeDir(n.cfg.dir().Snaps()), fs.MakeDir(n.cfg.DataDir)); err != nil {
		return err
	}
	n.wal, err = raftwal.Open(raftwal.Config{Dir: n.cfg.dir().Log(), FS: n.cfg.walFS, SegmentSize: n.cfg.SegmentSize, Logger: n.cfg.Logger})
	if err != nil {
		return fmt.Errorf("open the log in %s: %w", n.cfg.dir().Log(), err)
	}
	if r := n.wal.Recovered(); r.Torn != nil {
		n.log.Warn("the log had a torn tail", "torn", *r.Torn)
	}
	backend, err := boltdb.Open(n.cfg.dir().Path(memberdir.StateFile))
	if err != nil {
		return err
	}
	if wrap := n.cfg.wrapBackend; wrap != nil {
		backend = wrap(backend)
	}
	if n.store, err = store.Open(store.Config{Backend: backend, TTLEvents: func(l store.TTLLease) { n.ttl.Changed(l) }, Events: n.watch.Publish, Restored: n.watch.Missed, Logger: n.cfg.Logger}); err != nil {
		return errors.Join(err, backend.Close())
	}
	n.leadership.self = n.ID()
	n.members = membership.NewList(n.ID(), n.id.Members, n.cfg.Cluster, n.store)
	n.fresh, err = n.cfg.dir().IsFresh(&n.id, n.wal, n.store.Durable().Index)
	return n.cfg.advise(err, n.ID())
}

// connectAndRun connects to the peers and starts the goroutines.
func connectAndRun(n *Node, raw *raft.RawNode, bootstrapEntries uint64) (err error) {
	lease := n.lease.Info()
	n.links, err = transport.Start(transport.Config{
		Hello: transport.Hello{
			ClusterID: n.ClusterID(), From: n.ID(), Token: n.id.Token, Instance: n.id.Instance, Name: n.cfg.Name, PeerURLs: strings.Join(n.cfg.self().PeerURLs, ","),
			Promise: lease.Duration, Skew: lease.MaxClockSkew, DriftPPM: n.cfg.MaxDriftPPM, ClusterVersion: n.cfg.newestClusterVersion, Log: n.atStart, ProcessID: n.cfg.processID(),
		},
		Hold:     func() time.Duration { return n.lease.Info().Promise.Hold },
		Listener: n.cfg.Listener, Handler: peers{n}, MemberName: n.members.Label, Dial: n.cfg.Dial,
		MemberList:   func() (transport.MemberList, error) { return membership.MemberList(n.ClusterID(), n.ID(), n.store) },
		Authenticate: peers{n}.authenticate, Logger: n.cfg.Logger,
	})
	if err != nil {
		return err
	}
	newNetworkComponents(n, raw, bootstrapEntries)
	n.membership.routes.RegistryChanged()
	n.watch.Start(n.store)
	logAlarms(n.log, n.members, nil, n.store.Alarms())
	n.life.Go(n.applier.run)
	n.life.Go(func() {
		read := func(ctx context.Context) error { _, err := n.Read(ctx, ReadLease); return err }
		n.replay.run(read, n.calls.leaderSilence)
		n.membership.gate.AdviseAllMoved(n.links.Peers(), n.cfg.self().PeerURLs)
	})
	n.life.Go(n.checkpoints.Run)
	n.life.Go(n.publication.run)
	n.life.Go(n.versions.run)
	n.life.Go(func() { n.ttl.Run(n.life.Stopping()) })
	n.life.Go(n.loop.run)
	close(n.begun)
	go shutdown(n)
	n.log.Info("started", "id", transport.ID(n.ID()), "cluster", transport.ID(n.ClusterID()),
		"term", n.Term(), "applied", n.store.Applied(), "last", n.last.Load(), "lease", lease.Duration, "margin", lease.MaxClockSkew)
	return nil
}
