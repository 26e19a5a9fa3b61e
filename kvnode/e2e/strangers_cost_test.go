package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// usage is what a process has used.
type usage struct {
	cpu   time.Duration
	rssKB int
}

// used reads /proc; where there is none it is nothing.
func used(pid int) (u usage) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u
	}
	// The name in parentheses may hold anything; the rest are numbers.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, i := range []int{11, 12} { // utime and stime, in hundredths of a second
		ticks, _ := strconv.Atoi(fields[i])
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	pages, _ := strconv.Atoi(fields[21])
	u.rssKB = pages * os.Getpagesize() / 1024
	return u
}

// cost says what the members use while f runs.
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

// terms counts leaders as members name them.
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

// changes returns how many leaders came after the first.
func (w *terms) changes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.leaders) - 1
}

// probe writes as clients do: over connections that exist, and over new ones. The
// function it returns ends that and says how it went.
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

// waits are how long something took each time.
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

// String gives the median, the 99th percentile and the longest.
func (w *waits) String() string {
	if len(w.took) == 0 {
		return "none"
	}
	slices.Sort(w.took)
	at := func(p int) time.Duration { return w.took[(len(w.took)-1)*p/100].Round(100 * time.Microsecond) }
	return fmt.Sprintf("%d, %d failed, p50 %v p99 %v max %v", len(w.took), w.failed, at(50), at(99), at(100))
}
