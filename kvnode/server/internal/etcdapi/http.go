package etcdapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
)

// Handler serves etcd's HTTP pages: /version, /health, /livez and /readyz. It is for another
// listener than gRPC. It does not log, because probes are frequent.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", a.serveVersion)
	mux.HandleFunc("GET /health", a.serveHealth)
	a.livez().install(mux)
	a.readyz().install(mux)
	return mux
}

// versions is etcd's reply to /version, with kvnode's own version.
type versions struct {
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
	Storage string `json:"storage"`
	Node    string `json:"kvnode,omitempty"`
}

func (a *API) serveVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, versions{Server: Version, Cluster: Version, Storage: Version, Node: a.cfg.NodeVersion})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// Encode fails only if the client has disconnected.
	_ = json.NewEncoder(w).Encode(v)
}

// check is one check of a probe. run returns a remark, and an error if the probe must fail.
type check struct {
	name string
	run  func(ctx context.Context) (remark string, err error)
}

// probe is a list of checks. install serves all under one path, and each under its own.
type probe struct {
	path   string
	checks []check
	// timeout limits a run. It is the time for which streams that require a leader continue
	// without one. Most elections take less.
	timeout time.Duration
}

func (a *API) probe(path string, checks ...check) probe {
	return probe{path, checks, noLeaderTimeouts * a.cfg.ElectionTimeout}
}

// livez reports whether the member runs. It fails if a restart may help: if the member has ended, or a goroutine
// that all requests depend on is stuck. A restart does not help during a replay, without a quorum, or with a full
// disk. A stalled disk fails it only during a membership change, which waits for the disk. The name
// serializable_read is etcd's; the other checks are kvnode's.
func (a *API) livez() probe {
	return a.probe("/livez",
		check{"serializable_read", func(context.Context) (string, error) { return "", a.alive() }},
		check{"raft_loop", func(context.Context) (string, error) { loop, _ := a.node.Stalls(); return "", a.checkStall(loop) }},
		check{"applier", func(context.Context) (string, error) { _, applier := a.node.Stalls(); return "", a.checkStall(applier) }},
	)
}

func (a *API) alive() error { return clientError(a.node.Alive()) }

// stallTimeouts is the number of election timeouts a goroutine may be stuck before /livez fails.
// The other members replace a stuck leader after one. Below ten, a machine that swaps or pauses
// would have its member restarted.
const stallTimeouts = 10

// checkStall returns an error if a goroutine has made no progress for longer than the limit.
func (a *API) checkStall(stall time.Duration) error {
	if limit := stallTimeouts * a.cfg.ElectionTimeout; stall > limit {
		return fmt.Errorf("no progress for %v, at most %v (%d election timeouts) are normal: restart the member",
			stall.Round(time.Millisecond), limit, stallTimeouts)
	}
	return nil
}

// Liveness returns why /livez fails, or nil. It does not block.
func (a *API) Liveness(ctx context.Context) error { return a.livez().failure(ctx) }

// readyz reports whether clients should use this member, and whether another member may be
// stopped.
func (a *API) readyz() probe {
	return a.probe("/readyz",
		check{"data_corruption", a.corruptCheck},
		check{"restart_hold", a.holdCheck},
		check{"serializable_read", a.readCheck(true)},
		check{"linearizable_read", a.readCheck(false)},
		check{"non_learner", a.voterCheck},
		check{"disk_space", a.diskCheck},
		check{"lease", a.leaseRemark},
	)
}

// servingProbe reports whether clients should use this member. Unlike /readyz it succeeds during
// a restart hold and on a learner, which serve all requests. Both matter only before another
// member is stopped.
func (a *API) servingProbe() probe {
	return a.probe("",
		check{"data_corruption", a.corruptCheck},
		check{"serializable_read", a.readCheck(true)},
		check{"linearizable_read", a.readCheck(false)},
		check{"disk_space", a.diskCheck},
	)
}

// Readiness returns nil if /readyz succeeds before ctx ends, else the reason.
func (a *API) Readiness(ctx context.Context) error { return a.readyz().failure(ctx) }

func (a *API) readCheck(serializable bool) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) { return "", a.probeRead(ctx, serializable) }
}

func (a *API) corruptCheck(context.Context) (string, error) {
	for _, m := range a.node.Store().Alarms() {
		if m.GetAlarm() == pb.AlarmType_CORRUPT {
			return "", errors.New("alarm activated: CORRUPT")
		}
	}
	return "", nil
}

func (a *API) voterCheck(context.Context) (string, error) {
	if m, ok := a.node.Store().Members().ByID[a.node.ID()]; ok && m.Learner {
		return "", errors.New("not supported for learner")
	}
	return "", nil
}

// holdCheck fails during a restart hold (docs/glossary.md), in which this member neither votes nor campaigns. If
// another member were stopped now, no successor could be elected. After a step of its clock, a leader is in a hold
// too, but continues to serve, so the check does not fail there.
func (a *API) holdCheck(context.Context) (string, error) {
	s := a.node.Status()
	if hold := s.Lease.Promise.Hold; hold > 0 && s.Leader != s.ID {
		return "", fmt.Errorf("in its restart hold, votes in %v", hold.Round(time.Millisecond))
	}
	return "", nil
}

// diskCheck fails while this member rejects writes because its disk is full, or cannot make
// checkpoints and will reject writes later.
func (a *API) diskCheck(context.Context) (string, error) {
	switch s := a.node.Status(); {
	case s.DiskFull:
		return "", kvnode.ErrDiskFull
	case s.CheckpointErr != nil:
		return "", fmt.Errorf("no checkpoint can be made: %w", s.CheckpointErr)
	default:
		return "", nil
	}
}

// leaseRemark never fails: without a lease reads are slower, but correct.
func (a *API) leaseRemark(context.Context) (string, error) {
	s := a.node.Status().Lease
	if s.Valid() {
		return fmt.Sprintf("valid for another %v", s.Remaining), nil
	}
	return s.Status.String(), nil
}

// install adds the paths of p to mux.
func (p probe) install(mux *http.ServeMux) {
	mux.HandleFunc("GET "+p.path, func(w http.ResponseWriter, r *http.Request) {
		exclude := r.URL.Query()["exclude"]
		p.serve(w, r, slices.DeleteFunc(slices.Clone(p.checks), func(c check) bool {
			return slices.Contains(exclude, c.name)
		}))
	})
	for _, c := range p.checks {
		mux.HandleFunc("GET "+p.path+"/"+c.name, func(w http.ResponseWriter, r *http.Request) {
			p.serve(w, r, []check{c})
		})
	}
}

// failure returns the error of the first check that fails.
func (p probe) failure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for _, c := range p.checks {
		if _, err := c.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// serve runs checks and replies ok. If one fails, or with ?verbose, it lists all checks.
func (p probe) serve(w http.ResponseWriter, r *http.Request, checks []check) {
	ctx, cancel := context.WithTimeout(r.Context(), p.timeout)
	defer cancel()
	var report strings.Builder
	failed := false
	for _, c := range checks {
		remark, err := c.run(ctx)
		switch {
		case err != nil:
			failed = true
			fmt.Fprintf(&report, "[-]%s failed: %s\n", c.name, status.Convert(err).Message())
		case remark != "":
			fmt.Fprintf(&report, "[+]%s ok: %s\n", c.name, remark)
		default:
			fmt.Fprintf(&report, "[+]%s ok\n", c.name)
		}
	}
	if failed {
		http.Error(w, report.String(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// A write fails only if the client has disconnected.
	if r.URL.Query().Has("verbose") {
		_, _ = fmt.Fprint(w, report.String())
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// healthReply is etcd's reply to /health. Health is "true" or "false".
type healthReply struct {
	Health string `json:"health"`
	Reason string `json:"reason"`
}

// serveHealth serves /health. With ?serializable=true it checks this member alone, like /livez,
// because liveness probes ask for that; an alarm of any member still fails it, as in etcd.
// ?exclude=NOSPACE ignores an alarm.
func (a *API) serveHealth(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	reason := a.unhealthyReason(r.Context(), query["exclude"], query.Get("serializable") == "true")
	if reason != "" {
		writeJSON(w, http.StatusServiceUnavailable, healthReply{"false", reason})
		return
	}
	writeJSON(w, http.StatusOK, healthReply{"true", ""})
}

// unhealthyReason returns why the member is not healthy, in etcd's words, or "".
func (a *API) unhealthyReason(ctx context.Context, exclude []string, serializable bool) string {
	for _, m := range a.node.Store().Alarms() {
		if name := m.GetAlarm().String(); !slices.Contains(exclude, name) {
			return "ALARM " + name
		}
	}
	if !serializable && a.node.Leader() == 0 {
		return "RAFT NO LEADER"
	}
	err := cmp.Or(a.alive(), a.Liveness(ctx)) // the first error has etcd's words
	if !serializable {
		err = a.probeRead(ctx, false)
	}
	if err != nil {
		return "RANGE ERROR:" + status.Convert(err).Message()
	}
	return ""
}

// probeRead waits for a read of no key.
func (a *API) probeRead(ctx context.Context, serializable bool) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	mode := kvnode.ReadAuto
	if serializable {
		mode = kvnode.ReadSerializable
	}
	_, err := a.node.Read(ctx, mode)
	return clientError(err)
}
