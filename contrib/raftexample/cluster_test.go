package raftexample

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience is the timeout of every wait, for a busy machine.
const patience = 30 * time.Second

// cluster is a group of members, each a process.
type cluster struct {
	t       *testing.T
	program string
	peers   string
	members []*member
}

// member is one process. paths counts its reads by path.
type member struct {
	id, port int
	log      string
	dir      string
	process  *exec.Cmd
	paths    map[string]int
}

// newCluster lays out a group of three, and starts nothing.
func newCluster(t *testing.T, program string) *cluster {
	t.Helper()
	const size = 3
	ports := freePorts(t, 2*size)
	c := &cluster{t: t, program: program}
	urls, dir := make([]string, size), t.TempDir()
	for i := range size {
		urls[i] = fmt.Sprintf("http://127.0.0.1:%d", ports[i])
		c.members = append(c.members, &member{
			id: i + 1, port: ports[size+i], dir: dir, log: filepath.Join(dir, fmt.Sprintf("log%d", i+1)), paths: make(map[string]int),
		})
	}
	c.peers = strings.Join(urls, ",")
	t.Cleanup(c.stop)
	return c
}

// freePorts returns ports below the kernel's ephemeral range.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for port := 20000 + rand.IntN(8000); len(ports) < n; port++ {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}

func (c *cluster) start(all ...*member) {
	c.t.Helper()
	for _, m := range all {
		log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			c.t.Fatal(err)
		}
		m.process = exec.Command(c.program, "--id", strconv.Itoa(m.id), "--cluster", c.peers, "--port", strconv.Itoa(m.port))
		m.process.Dir, m.process.Stdout, m.process.Stderr = m.dir, log, log
		err = m.process.Start()
		if cerr := log.Close(); err != nil || cerr != nil {
			c.t.Fatal(err, cerr)
		}
	}
}

// kill ends a process at once.
func (c *cluster) kill(m *member) {
	c.t.Helper()
	if err := m.process.Process.Kill(); err != nil {
		c.t.Errorf("member %d has ended by itself: %v\n%s", m.id, err, c.tail(m))
	}
	_ = m.process.Wait() // it was killed
	m.process = nil
}

// stop kills the remaining members, and fails the test if the race detector has reported anything.
func (c *cluster) stop() {
	for _, m := range c.members {
		if m.process != nil {
			c.kill(m)
		}
		if text, err := os.ReadFile(m.log); err == nil && strings.Contains(string(text), "DATA RACE") {
			c.t.Errorf("member %d:\n%s", m.id, text)
		}
	}
}

func (c *cluster) tail(m *member) string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-3000):])
}

// answer is the response to a request; code is 0 without one.
type answer struct {
	code int
	body string
}

func (c *cluster) ask(m *member, method, key, body string) answer {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, fmt.Sprintf("http://127.0.0.1:%d/%s", m.port, key), strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	m.paths[resp.Header.Get("Read-Path")]++
	return answer{resp.StatusCode, string(text)}
}

// until repeats done until it returns true.
func (c *cluster) until(what string, done func() bool) {
	c.t.Helper()
	for begin := time.Now(); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) < patience {
			continue
		}
		for _, m := range c.members {
			c.t.Logf("member %d, reads %v:\n%s", m.id, m.paths, c.tail(m))
		}
		c.t.Fatalf("%s: not in %v", what, patience)
	}
}
