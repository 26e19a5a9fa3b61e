package status

import (
	"encoding/json"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/detector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// full is a status in which nothing is zero.
func full() kvnode.Status {
	s := kvnode.Status{ID: 0xa1, ClusterID: 0xc1, Name: "a", Term: 7, Leader: 0xa1, Commit: 100, Applied: 99, Last: 101, Waiting: 3, Replaying: true, DiskFull: true}
	s.Lease = leaderlease.Info{
		Role: raft.StateLeader, Status: leaderlease.StatusValid, Waiting: 2,
		Remaining: 612345 * time.Microsecond, EndsIn: 792345 * time.Microsecond,
		Duration: 900 * time.Millisecond, MaxClockSkew: 180 * time.Millisecond, MaxPromise: time.Second,
		Promise: leaderlease.PromiseInfo{Leader: 0xb1, Term: 6, Remaining: 5 * time.Millisecond, Hold: 10 * time.Millisecond},
		Peers:   []leaderlease.PeerInfo{{ID: 0xb1, Promised: 700 * time.Millisecond}, {ID: 0xc2, ClockSuspect: true}},
		Err:     errors.New("misuse"),
	}
	s.Lease.Clock.Name, s.Lease.Clock.CountsSuspend, s.Lease.Clock.Warning = "vdso:boottime", true, "none"
	s.LeaseStats.Reads[leaderlease.PathLease], s.LeaseStats.Refused[leaderlease.StatusMargin] = 1000, 1
	s.Suspicions = detector.Stats{FalseSuspicions: 1, Forgets: 2, Limit: 250 * time.Millisecond, Last: detector.FailOver{
		Cause: detector.ConnClosed, Detection: 2 * time.Millisecond, Promise: 240 * time.Millisecond, Election: 8 * time.Millisecond, Commit: 3 * time.Millisecond,
	}, FailOvers: [detector.NumCauses]uint64{detector.ConnClosed: 1}}
	s.Suspicions.Suspicions[detector.ConnClosed], s.Suspicions.Suspicions[detector.PreVote] = 3, 1
	s.Checkpoint.Index, s.Checkpoint.Term, s.Checkpoint.Revision = 90, 6, 50
	s.Names, s.Awaited = map[uint64]string{0xb1: "not b", 0xc2: "c"}, []string{"c (http://c:2380)"}
	s.ClusterVersion, s.NewestClusterVersion, s.ClusterVersionKeptBy = 1, 2, []string{"c (http://c:2380): not connected"}
	s.WAL.Syncs, s.WAL.SyncTime, s.WAL.MaxSyncTime = 4, 8*time.Millisecond, 5*time.Millisecond
	s.WAL.Entries, s.WAL.Bytes = 200, 4096
	s.Peers = []transport.PeerStatus{
		{ID: 0xb1, Connected: true, Hello: transport.Hello{Name: "b"}, Sent: 10, Lost: 1, RTT: 250 * time.Microsecond},
		{ID: 0xc2, LastError: "refused"},
	}
	s.Err, s.CheckpointErr = errors.New("the disk has failed"), errors.New("no space left on device")
	s.Alarms = []*pb.AlarmMember{{MemberID: 0xc2, Alarm: pb.AlarmType_NOSPACE}, {MemberID: 0xd4, Alarm: pb.AlarmType_CORRUPT}}
	return s
}

// Scripts read these names; what they mean does not change.
func TestNamesAreStable(t *testing.T) {
	s := full()
	r := Of(&s)
	r.Version, r.Ready, r.Revision = "v1.2.3", true, 51
	got, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", "status.json")
	if *rewrite {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s has changed (go test -args -rewrite, then read the diff):\n%s", path, got)
	}
}

func TestRoles(t *testing.T) {
	for state, want := range map[raft.StateType]string{
		raft.StateLeader: "leader", raft.StateFollower: "follower", raft.StateCandidate: "candidate", raft.StatePreCandidate: "pre_candidate",
	} {
		s := kvnode.Status{Lease: leaderlease.Info{Role: state}}
		if got := Of(&s).Role; got != want {
			t.Errorf("Role of %v = %s, want %s", state, got, want)
		}
		s.Learner = true
		if got := Of(&s).Role; got != "learner" {
			t.Errorf("Role of a learner in %v = %s, want learner", state, got)
		}
	}
}

// Nothing known is nothing, and no division by it.
func TestZero(t *testing.T) {
	r := Of(&kvnode.Status{})
	if r.ID != "" || r.Leader != "" || r.WAL.SyncAvgMS != 0 || len(r.Reads) != 0 || r.Error != "" || r.Lease.State != "none" {
		t.Errorf("Of(zero) = %+v, want nothing in it", r)
	}
}

// Each error of a report is put into other words, and nothing else is.
func TestReword(t *testing.T) {
	s := full()
	r := Of(&s)
	r.Error, r.CheckpointError, r.Lease.Error, r.Peers[0].LastError = "a", "b", "c", "d"
	name := r.Name
	r.Reword(strings.ToUpper)
	if got := r.Error + r.CheckpointError + r.Lease.Error + r.Peers[0].LastError; got != "ABCD" || r.Name != name {
		t.Errorf("Reword() leaves the errors as %s, and the name as %s, want ABCD and %s", got, r.Name, name)
	}
}

type fixed struct{ r Report }

func (f fixed) Report() Report { return f.r }

// What is served is what is fetched.
func TestFetch(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := full()
	want := Of(&s)
	server := grpc.NewServer()
	Register(server, fixed{want})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Fetch(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		t.Errorf("Fetch() = %s, want %s", a, b)
	}
	_ = conn.Close()
	server.Stop()
	if err := <-served; err != nil {
		t.Errorf("Serve() = %v, want nil", err)
	}
}
