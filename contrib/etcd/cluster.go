package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cluster is three members of etcd on loopback.
type cluster struct {
	dir     string
	peers   string
	members []*member
}

// member is one process, and where it is asked.
type member struct {
	name, client, peer string
	id                 string
	process            *exec.Cmd
}

// newCluster finds ports that are free now.
func newCluster(dir string) (c *cluster, err error) {
	c = &cluster{dir: dir}
	var taken []net.Listener // all of them before one is free again
	defer func() {
		for _, l := range taken {
			err = errors.Join(err, l.Close())
		}
	}()
	var free []string
	for range 6 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		free = append(free, "http://"+l.Addr().String())
		taken = append(taken, l)
	}
	var peers []string
	for i := range 3 {
		m := &member{name: fmt.Sprintf("m%d", i+1), client: free[2*i], peer: free[2*i+1]}
		c.members = append(c.members, m)
		peers = append(peers, m.name+"="+m.peer)
	}
	c.peers = strings.Join(peers, ",")
	return c, nil
}

// start runs binary as member m, with the gate or without.
func (c *cluster) start(m *member, binary, gates string) (err error) {
	log, err := os.OpenFile(filepath.Join(c.dir, m.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	args := []string{
		"--name", m.name, "--data-dir", c.data(m), "--initial-cluster", c.peers,
		"--listen-client-urls", m.client, "--advertise-client-urls", m.client,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
	}
	if gates != "" {
		args = append(args, "--feature-gates", gates)
	}
	m.process = exec.Command(binary, args...)
	m.process.Stdout, m.process.Stderr = log, log
	return m.process.Start()
}

func (c *cluster) data(m *member) string { return filepath.Join(c.dir, m.name) }

// kill is kill -9.
func (m *member) kill() error {
	if m.process == nil {
		return nil
	}
	err := m.process.Process.Kill()
	_ = m.process.Wait()
	m.process = nil
	return err
}

func (c *cluster) stop() (err error) {
	for _, m := range c.members {
		err = errors.Join(err, m.kill())
	}
	return err
}

// leader is the member that leads, and is known to lead by itself.
func (c *cluster) leader(ctx context.Context) (*member, error) {
	for {
		for _, m := range c.members {
			var s struct {
				Header struct {
					MemberID string `json:"member_id"`
				} `json:"header"`
				Leader string `json:"leader"`
			}
			if m.process == nil || m.ask(ctx, "maintenance/status", struct{}{}, &s) != nil {
				continue
			}
			if m.id = s.Header.MemberID; m.id != "" && m.id == s.Leader {
				return m, nil
			}
		}
		if err := pause(ctx); err != nil {
			return nil, fmt.Errorf("no leader: %w", err)
		}
	}
}

// pause is the time between two looks at something that is waited for.
func pause(ctx context.Context) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask calls etcd's gateway.
func (m *member) ask(ctx context.Context, what string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.client+"/v3/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	text, err := answer(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", m.name, what, err)
	}
	return json.Unmarshal(text, out)
}

// answer is the body of what is answered to req.
func answer(req *http.Request) (text []byte, err error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	text, err = io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return text, err
}

const key = "counter"

func (m *member) put(ctx context.Context, n int) error {
	return m.ask(ctx, "kv/put", map[string][]byte{"key": []byte(key), "value": []byte(strconv.Itoa(n))}, &struct{}{})
}

// get reads what put has written last, linearizably unless serializable is asked for.
func (m *member) get(ctx context.Context, serializable bool) (int, error) {
	var out struct {
		Kvs []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	in := map[string]any{"key": base64.StdEncoding.EncodeToString([]byte(key)), "serializable": serializable}
	if err := m.ask(ctx, "kv/range", in, &out); err != nil || len(out.Kvs) == 0 {
		return 0, err
	}
	return strconv.Atoi(string(out.Kvs[0].Value))
}

// served is how many reads the member has served by path.
func (m *member) served(ctx context.Context, path string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.client+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	text, err := answer(req)
	if err != nil {
		return 0, err
	}
	name := fmt.Sprintf("etcd_server_leader_lease_reads_total{path=%q} ", path)
	_, rest, ok := strings.Cut(string(text), "\n"+name)
	if !ok {
		return 0, nil
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(line)
}
