package e2e

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leaderlease/go/internal/testcluster"
)

var (
	figuresFlag = flag.Int("figures", 0, "requests of each run of redis-benchmark in TestRedisFigures; without any, it is skipped")
	turnsFlag   = flag.Int("turns", 3, "how often TestRedisFigures measures each server, in turn")
)

// figureServer is a server of the Redis protocol that is measured.
type figureServer struct {
	name, addr string
	rates      map[string][]float64 // a second
}

// TestRedisFigures compares the gateway of three members, and the port of their leader, with redis-server. The second
// redis-server is the A/A control. Each server is measured in turn, in another order each time.
func TestRedisFigures(t *testing.T) {
	if *figuresFlag == 0 {
		t.Skip("for figures: -args -figures=200000 (make redis-figures)")
	}
	all, leader := figureServers(t)
	for turn := range *turnsFlag {
		for i := range all {
			s := &all[(i+turn)%len(all)]
			for _, pipeline := range []string{"1", "16"} {
				s.benchmark(t, pipeline)
			}
			s.locks(t)
		}
	}
	profile(t, &all[len(all)-1], leader)
	base := all[0].rates
	for _, s := range all {
		for _, what := range []string{"SET -P 1", "GET -P 1", "SET -P 16", "GET -P 16", "lock, renew, unlock"} {
			got := median(s.rates[what])
			t.Logf("%-28s %-20s %9.0f/s %5.2f  %.0f", s.name, what, got, got/median(base[what]), s.rates[what])
		}
	}
}

// profile writes a CPU profile of the leader while it is measured, to go tool pprof.
func profile(t *testing.T, s *figureServer, leader *testcluster.Member) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		answer, err := http.Get("http://" + leader.Endpoint + "/debug/pprof/profile?seconds=3")
		if err != nil {
			done <- err
			return
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		done <- errors.Join(err, os.WriteFile(filepath.Join(t.ArtifactDir(), "leader.pprof"), data, 0o600))
	}()
	again := figureServer{s.name, s.addr, make(map[string][]float64)}
	for {
		select {
		case err := <-done:
			must(t, err)
			t.Logf("a CPU profile of the leader: %s/leader.pprof (with -artifacts, it is kept)", t.ArtifactDir())
			return
		default:
			again.benchmark(t, "16")
		}
	}
}

func figureServers(t *testing.T) (all []figureServer, leader *testcluster.Member) {
	t.Helper()
	add := func(name, addr string) {
		all = append(all, figureServer{name, addr, make(map[string][]float64)})
	}
	for _, r := range []struct {
		name string
		args []string
	}{{"redis-server", nil}, {"redis-server, the same", nil}, {"redis-server, appendfsync", []string{"--appendonly", "yes", "--appendfsync", "always"}}} {
		addr, err := testcluster.FreeAddr(t.Context())
		must(t, err)
		_, port, err := net.SplitHostPort(addr)
		must(t, err)
		cmd := exec.CommandContext(t.Context(), "redis-server", append([]string{"--port", port, "--dir", t.TempDir()}, r.args...)...)
		must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Wait() }) // the end of t.Context kills it
		client := redisClient(t, addr)
		for ctx := deadline(t); client.Ping(ctx).Err() != nil; time.Sleep(time.Millisecond) {
			must(t, ctx.Err())
		}
		add(r.name, addr)
	}
	ports := make(map[*testcluster.Member]string)
	c := newCluster(t, testcluster.Config{Program: onlyKvnode(t), Flags: []string{electsLate, "--enable-pprof"}, Own: func(m *testcluster.Member) []string {
		addr, err := testcluster.FreeAddr(t.Context())
		must(t, err)
		ports[m] = addr
		return []string{"--listen-redis-url=http://" + addr}
	}})
	must(t, c.Serve(deadline(t)))
	var err error
	leader, err = c.Leader(deadline(t))
	must(t, err)
	add("kvnode redis, three members", startRedis(t, c, 1)[0])
	add("the leader of three members", ports[leader])
	return all, leader
}

// benchmark runs redis-benchmark with distinct keys.
func (s *figureServer) benchmark(t *testing.T, pipeline string) {
	t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	must(t, err)
	out, err := exec.CommandContext(t.Context(), "redis-benchmark", "-h", host, "-p", port, "-t", "get,set", "-P", pipeline,
		"-n", strconv.Itoa(*figuresFlag), "-r", "100000", "-c", "64", "--csv").Output()
	must(t, err)
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	must(t, err)
	for _, row := range rows[1:] {
		rate, err := strconv.ParseFloat(row[1], 64)
		must(t, err)
		what := row[0] + " -P " + pipeline
		s.rates[what] = append(s.rates[what], rate)
	}
}

// locks takes, renews and releases locks with redsync, 16 clients with one lock each.
func (s *figureServer) locks(t *testing.T) {
	t.Helper()
	const clients = 16
	client := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, PoolSize: clients})
	defer func() { _ = client.Close() }()
	ctx, rounds := deadline(t), max(1, *figuresFlag/1000)
	var failed atomic.Value
	var all sync.WaitGroup
	began := time.Now()
	for i := range clients {
		all.Go(func() {
			m := mutex(client, fmt.Sprint("figure:", i), 30*time.Second, 1)
			for range rounds {
				err := m.LockContext(ctx)
				_, renewErr := m.ExtendContext(ctx)
				_, releaseErr := m.UnlockContext(ctx)
				if err := errors.Join(err, renewErr, releaseErr); err != nil {
					failed.Store(err)
				}
			}
		})
	}
	all.Wait()
	if err, is := failed.Load().(error); is {
		t.Errorf("%s: %v", s.name, err)
	}
	const what = "lock, renew, unlock"
	s.rates[what] = append(s.rates[what], float64(clients*rounds)/time.Since(began).Seconds())
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }
