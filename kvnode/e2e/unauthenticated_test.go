package e2e

import (
	"context"
	"crypto/tls"
	be "encoding/binary" // binary is what a server is made of here
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/internal/tlstest"
)

var (
	silentFlag = flag.Int("silent", 200, "connections of TestUnauthenticated that say nothing")
	failsFlag  = flag.Int("failing", 100, "handshakes of TestUnauthenticated that fail, a second")
	floodFlag  = flag.Duration("flood", time.Second, "for how long TestUnauthenticated measures a flood before it stops members")
	beforeFlag = flag.String("before", "", "another kvnode `binary` that TestUnauthenticated measures in turn, and asks nothing of")
)

// letIn is the time limit for a started member to be connected in both directions.
const letIn = 5 * time.Second

// TestUnauthenticated connects to the ports of three members without authentication, while one
// is killed, the leader moves, and the next leader is killed. The members connect to each
// other all the same. The full test is
//
//	make unauthenticated BEFORE=kvnode
//
// It takes minutes and compares the costs. Members must be connected again in time, and no other
// leader change is allowed. It needs a quiet machine.
func TestUnauthenticated(t *testing.T) {
	if testing.Short() {
		t.Skip("the crowd needs some seconds")
	}
	p := onlyKvnode(t)
	arms := []arm{{"one host, the members' own", p, 1, true}}
	if *beforeFlag != "" {
		before := p
		before.Path = *beforeFlag
		arms = []arm{
			{"before, many hosts", before, 250, false},
			{"after,  many hosts", p, 250, true},
			{"before, one host", before, 1, false},
			{"after,  one host", p, 1, true},
			{"before, many hosts, 1024 files", withFiles(before, 1024), 250, false},
			{"after,  many hosts, 1024 files", withFiles(p, 1024), 250, true},
		}
	}
	for _, a := range arms {
		t.Run(a.name, func(t *testing.T) { newSiege(t, a).run() })
	}
}

// arm is one configuration under test.
type arm struct {
	name    string
	program testcluster.Program
	sources int
	ours    bool // it is held to what is promised
}

// withFiles runs a program with n file descriptors.
func withFiles(p testcluster.Program, n int) testcluster.Program {
	p.Args = slices.Concat([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, n), p.Path}, p.Args)
	p.Path = "/bin/sh"
	return p
}

// siege is a cluster with a crowd of unauthenticated clients.
type siege struct {
	*secured
	arm
	crowd crowd

	stop context.CancelFunc
	gone sync.WaitGroup
}

func newSiege(t *testing.T, a arm) *siege {
	t.Helper()
	s := &siege{secured: newSecured(t, a.program), arm: a}
	s.start()
	s.trust()
	s.crowd = crowd{
		Silent: *silentFlag, Pause: 5 * time.Second, Failing: *failsFlag, Lies: *failsFlag / 20, Sources: a.sources,
		Liar: s.liar(), Lie: s.lie(),
	}
	for _, m := range s.Members() {
		s.crowd.Peers, s.crowd.Clients = append(s.crowd.Peers, m.Peer), append(s.crowd.Clients, m.Endpoint)
	}
	return s
}

// liar returns a certificate of the members' authority that is valid for no host.
func (s *siege) liar() tls.Certificate {
	pair := s.ca.Issue(nil, tlstest.For("liar"))
	c, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must(s.t, err)
	return c
}

// lie is the hello of a member of another cluster (see transport/packet.go).
func (s *siege) lie() []byte {
	payload := []byte(`{"cluster_id":1,"from":2,"to":3,"instance":"` + strings.Repeat("x", 1000) + `"}`)
	b := slices.Concat([]byte("llkv\x00\x01\x01\x00"), be.BigEndian.AppendUint32(nil, uint32(len(payload))), payload)
	return be.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func (s *siege) run() {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	watch := watchTerms(ctx, s)
	defer func() {
		cancel()
		watch.asking.Wait()
	}()
	s.phase(ctx, "quiet")
	s.come(ctx)
	s.phase(ctx, "unauthenticated clients")
	probe := s.probe(ctx)

	leader, err := s.Leader(ctx)
	must(s.t, err)
	i := slices.Index(s.Members(), leader)
	next := (i + 1) % 3
	follower := s.Members()[next]
	s.restart(ctx, "follower", follower)
	calm := watch.changes()
	began := time.Now()
	s.move(ctx, watch.clients[i], watch.clients[next])
	s.t.Logf("%-32s leader moved after %v", s.name, time.Since(began).Round(time.Millisecond))
	s.restart(ctx, "leader", follower)
	time.Sleep(*floodFlag / 2)
	s.leave()
	if calm != 0 {
		s.complain("the leader changed %d times before it was moved or killed, want 0", calm)
	}
	s.t.Logf("%-32s leader changes: %d before it was moved and killed, %d in all", s.name, calm, watch.changes())
	s.t.Logf("%-32s clients: %s", s.name, probe())
	s.t.Logf("%-32s %s", s.name, &s.crowd)
}

// phase logs the members' resource use and the clients' latencies for a while.
func (s *siege) phase(ctx context.Context, name string) {
	probe := s.probe(ctx)
	cost := s.cost(func() { time.Sleep(*floodFlag) })
	s.t.Logf("%-32s %-9s %s; %s", s.name, name, cost, probe())
}

// complain fails the full test if this arm must meet its limits. The short test runs
// beside other tests, which may delay it.
func (s *siege) complain(format string, args ...any) {
	s.t.Helper()
	if s.ours && *beforeFlag != "" {
		s.t.Errorf(format, args...)
		return
	}
	s.t.Logf("%-32s NOT AS PROMISED: "+format, slices.Concat([]any{s.name}, args)...)
}

func (s *siege) come(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	s.gone.Go(func() { s.crowd.Run(ctx) })
	time.Sleep(*floodFlag) // until all are there
}

func (s *siege) leave() {
	s.stop()
	s.gone.Wait()
}

// restart kills a member and logs how long its reconnection took.
func (s *siege) restart(ctx context.Context, what string, m *testcluster.Member) {
	must(s.t, m.Kill())
	time.Sleep(time.Second)
	logged := len(m.Log())
	began := time.Now()
	must(s.t, m.Start())
	links := func(text string) int { return strings.Count(m.Log()[logged:], text) }
	// Two streams to each of the two other members, and two from each.
	const limit = time.Minute
	for links("connected to peer") < 4 || links("peer has connected") < 4 {
		if time.Since(began) > limit || ctx.Err() != nil {
			if s.ours {
				s.t.Error("a member is kept out")
			}
			s.complain("the %s is not connected to all after %v: %d links to others, %d from them", what, limit,
				links("connected to peer"), links("peer has connected"))
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(began)
	s.t.Logf("%-32s %s killed and started: connected both ways after %v", s.name, what, took.Round(time.Millisecond))
	if took > letIn {
		s.complain("the %s is let in after %v, want %v", what, took, letIn)
	}
}

// move transfers leadership and waits until the other member has it.
func (s *siege) move(ctx context.Context, from, to *clientv3.Client) {
	for ctx.Err() == nil {
		status, err := to.Status(ctx, to.Endpoints()[0])
		if err == nil && status.Leader == status.Header.GetMemberId() {
			return
		}
		if err == nil {
			// The transfer may be refused while the other member is bound by a promise of its last
			// process. The status shows whether it was done.
			_, _ = from.MoveLeader(ctx, status.Header.GetMemberId())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// usage is the resource use of a process.
type usage struct {
	cpu   time.Duration
	rssKB int
}

// used reads /proc. It returns the zero value on systems without it.
func used(pid int) (u usage) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u
	}
	// The name in parentheses may contain spaces; the other fields are numbers.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, i := range []int{11, 12} { // utime and stime, in hundredths of a second
		ticks, _ := strconv.Atoi(fields[i])
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	pages, _ := strconv.Atoi(fields[21])
	u.rssKB = pages * os.Getpagesize() / 1024
	return u
}

// cost describes the members' resource use while f runs.
func (s *siege) cost(f func()) string {
	before := make(map[string]usage)
	for _, m := range s.Members() {
		before[m.Name] = used(m.PID())
	}
	began := time.Now()
	f()
	took := time.Since(began)
	var all []string
	for _, m := range s.Members() {
		u := used(m.PID())
		all = append(all, fmt.Sprintf("%s %4.1f %% CPU %4d MB", m.Name,
			100*(u.cpu-before[m.Name].cpu).Seconds()/took.Seconds(), u.rssKB/1024))
	}
	return strings.Join(all, ", ")
}

// terms counts the leaders that the members report.
type terms struct {
	asking  sync.WaitGroup
	clients []*clientv3.Client // of each member
	mu      sync.Mutex
	leaders []string // term and leader, each once
}

// watchTerms asks all members for their leader, over connections that are opened before the
// crowd comes.
func watchTerms(ctx context.Context, s *siege) *terms {
	w := &terms{}
	for _, m := range s.Members() {
		c, err := m.Client()
		must(s.t, err)
		s.t.Cleanup(func() { _ = c.Close() })
		w.clients = append(w.clients, c)
		w.ask(ctx, c)
		w.asking.Go(func() {
			for ctx.Err() == nil {
				w.ask(ctx, c)
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	return w
}

func (w *terms) ask(ctx context.Context, c *clientv3.Client) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st, err := c.Status(ctx, c.Endpoints()[0])
	if err != nil || st.Leader == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if name := fmt.Sprintf("%d/%x", st.RaftTerm, st.Leader); !slices.Contains(w.leaders, name) {
		w.leaders = append(w.leaders, name)
	}
}

// changes returns the number of leader changes.
func (w *terms) changes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.leaders) - 1
}

// probe writes as clients do, over existing connections and over new ones. The
// returned function stops it and describes the latencies.
func (s *siege) probe(ctx context.Context) func() string {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var old, fresh waits
	steady, err := s.Client()
	must(s.t, err)
	put := func(c *clientv3.Client) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := c.Put(ctx, "key", "value")
		return err
	}
	wg.Go(func() { old.each(ctx, 20*time.Millisecond, func(int) error { return put(steady) }) })
	wg.Go(func() {
		fresh.each(ctx, 200*time.Millisecond, func(i int) error {
			m := s.Members()[i%3]
			if !m.Running() {
				return nil
			}
			return m.Use(put)
		})
	})
	return func() string {
		cancel()
		wg.Wait()
		_ = steady.Close()
		return fmt.Sprintf("puts %s; puts over new connections %s", &old, &fresh)
	}
}

// waits are the latencies of an operation.
type waits struct {
	took   []time.Duration
	failed int
}

func (w *waits) each(ctx context.Context, pause time.Duration, f func(i int) error) {
	for i := 0; ctx.Err() == nil; i++ {
		began := time.Now()
		err := f(i)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.failed++
		}
		w.took = append(w.took, time.Since(began))
		time.Sleep(pause)
	}
}

// String returns the median, the 99th percentile and the longest.
func (w *waits) String() string {
	if len(w.took) == 0 {
		return "none"
	}
	slices.Sort(w.took)
	at := func(p int) time.Duration { return w.took[(len(w.took)-1)*p/100].Round(100 * time.Microsecond) }
	return fmt.Sprintf("%d, %d failed, p50 %v p99 %v max %v", len(w.took), w.failed, at(50), at(99), at(100))
}
