package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/flood"
	"github.com/leaderlease/go/internal/testcluster"
)

// floodConns is how many connections flood at a time. A connection that is closed is
// opened again.
const floodConns = 20

// floodLasts is for how long, at most.
const floodLasts = 12 * time.Second

// TestFloods floods the leader's client port with frames of HTTP/2 while another client
// writes and reads there: no request fails, and no election starts. Without -slow it is
// the first kind of flood, for floodRounds. With -slow each kind lasts for longer than
// an election timeout, and the test prints what it costs:
//
//	make floods
func TestFloods(t *testing.T) {
	eachServer(t, func(t *testing.T, p testcluster.Program) {
		kinds := flood.Kinds[:1]
		if *slowFlag {
			kinds = flood.Kinds
		}
		t.Logf("%-24s %6s %8s %10s %10s %8s %10s", "flood", "terms", "MB peak", "p50", "p99", "failed", "tick late")
		for _, kind := range kinds {
			t.Run(kind.Name, func(t *testing.T) { floodLeader(t, p, kind) })
		}
	})
}

func floodLeader(t *testing.T, p testcluster.Program, kind flood.Kind) {
	// With -slow floods last for longer than it takes an election to come of them.
	lasts, one, elects := floodLasts, 5*time.Second, electsSoon
	if !*slowFlag { // a busy machine floods slowly, answers slowly, and replaces leaders by itself
		lasts, one, elects = patience, patience/2, electsLate
	}
	c := startCluster(t, p, elects)
	ctx, cancel := context.WithTimeout(t.Context(), lasts+patience)
	defer cancel()
	lead, err := c.Leader(ctx)
	must(t, err)
	before, err := lead.WaitStatus(ctx)
	must(t, err)
	client, err := lead.Client()
	must(t, err)
	defer client.Close()

	flooding, end := context.WithTimeout(ctx, lasts)
	defer end()
	rounds, wait := floodMember(flooding, lead, kind)
	took, failed := useWhile(client, one, func() bool {
		return flooding.Err() == nil && (*slowFlag || rounds.Load() < floodRounds)
	})
	end()
	wait()

	after, err := anyStatus(ctx, c)
	must(t, err)
	peak, err := peakMemory(lead)
	if err != nil && runtime.GOOS == "linux" {
		t.Error(err)
	}
	late := metric(ctx, lead, "kvnode_tick_late_max_seconds")
	terms := after.RaftTerm - before.RaftTerm
	t.Logf("%-24s %6d %8d %10v %10v %8d %9.3fs", kind.Name, terms, peak/1e6,
		took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond), failed, late)
	if p.Name != kvnode {
		return // to compare with
	}
	if failed > 0 || (*slowFlag && terms > 0) {
		t.Errorf("%d requests of another client failed, %d elections, want none", failed, terms)
	}
	if peak > 400e6 {
		t.Errorf("the leader had %d MB in memory, want at most 400", peak/1e6)
	}
}

// floodRounds is how often a flood without -slow repeats what it does.
const floodRounds = 100_000

// floodMember floods the client port of m until ctx ends, and counts the rounds. wait
// returns then.
func floodMember(ctx context.Context, m *testcluster.Member, kind flood.Kind) (rounds *atomic.Uint64, wait func()) {
	var wg sync.WaitGroup
	rounds = new(atomic.Uint64)
	elsewhere := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
	for range floodConns {
		wg.Go(func() {
			for ctx.Err() == nil {
				if conn, err := elsewhere.DialContext(ctx, "tcp", m.Endpoint); err == nil {
					_ = kind.Run(ctx, conn, "/etcdserverpb.KV/Range", rounds) // an error means that the connection has ended
				}
			}
		})
	}
	return rounds, wg.Wait
}

// useWhile writes and reads, each pair within limit, and returns how long they took.
func useWhile(c *clientv3.Client, limit time.Duration, more func() bool) (took []time.Duration, failed int) {
	for ok := true; ok; ok = more() {
		began := time.Now()
		one, cancel := context.WithTimeout(context.Background(), limit)
		_, err := c.Put(one, "k", "v")
		if err == nil {
			_, err = c.Get(one, "k")
		}
		cancel()
		if err != nil {
			failed++
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, failed
}

// anyStatus asks until a member answers.
func anyStatus(ctx context.Context, c *testcluster.Cluster) (*clientv3.StatusResponse, error) {
	for {
		for _, m := range c.Members() {
			if s, err := m.Status(ctx); err == nil {
				return s, nil
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("no member says its status: %w", err)
		}
	}
}

// metric returns a metric without labels, 0 if there is none.
func metric(ctx context.Context, m *testcluster.Member, name string) float64 {
	_, text := page(ctx, m, "/metrics") // half of it has what it has
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	v, _ := strconv.ParseFloat(string(found[1]), 64)
	return v
}

// page gets a page of a member. The code is 0 if the member does not answer.
func page(ctx context.Context, m *testcluster.Member, path string) (code int, body []byte) {
	scheme := map[bool]string{false: "http://", true: "https://"}[m.TLS != nil]
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+m.Endpoint+path, http.NoBody)
	if err != nil {
		return 0, nil
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: m.TLS, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	body, _ = io.ReadAll(response.Body)
	return response.StatusCode, body
}

// peakMemory returns the most that the process has had in memory so far, in
// bytes.
func peakMemory(m *testcluster.Member) (int64, error) { return memoryOf(m, "VmHWM") }

// memoryOf returns what the system says of a process's memory, in bytes. Only Linux does.
func memoryOf(m *testcluster.Member, field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.PID()))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", m.Name, err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, field+": %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("memory of %s: the system does not tell", m.Name)
}
