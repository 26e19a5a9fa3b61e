package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-semver/semver"

	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver"
)

// etcdMember keeps the code that starts etcd in process, and is not used.
type etcdMember struct {
	Member
	Server *etcdserver.EtcdServer
}

// Server stands for etcd's server: a process of kvnode. What is not here would
// look into etcd's memory, and panics, since the embedded server is nil.
type Server struct {
	*etcdserver.EtcdServer
	Cfg config.ServerConfig

	member *Member
	cmd    *exec.Cmd
	id     types.ID
	alive  context.Context // until the process has ended
	ready  chan struct{}   // closed when it knows a leader
	parted chan struct{}   // closed when the wait has been given up

	last atomic.Pointer[answer]
	mu   struct {
		sync.Mutex
		client *clientv3.Client // nil unless it is connected
	}
}

const patience = 10 * time.Second

// listens waits until the process accepts clients and has its directory.
func (s *Server) listens() error {
	network, host, port := s.member.grpcAddr()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.alive.Done():
			return fmt.Errorf("kvnode ended: %v", s.cmd.ProcessState)
		default:
		}
		c, err := net.Dial(network, net.JoinHostPort(host, port))
		if err != nil {
			continue
		}
		c.Close()
		if s.identify() == nil {
			return nil
		}
	}
	return fmt.Errorf("kvnode does not listen")
}

// identify reads the member's ID from its directory.
func (s *Server) identify() error {
	data, err := os.ReadFile(filepath.Join(s.member.DataDir, "member.json"))
	if err != nil {
		return err
	}
	var is struct {
		MemberID uint64 `json:"member_id"`
	}
	err = json.Unmarshal(data, &is)
	s.id = types.ID(is.MemberID)
	return err
}

// watch closes ready when the member has found a leader.
func (s *Server) watch() {
	defer close(s.parted)
	for s.Lead() == 0 {
		select {
		case <-s.alive.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	close(s.ready)
}

// statusTime is for how long an answer holds. Etcd's framework reads these values from memory, often
// twice in one condition, so two answers in a row must not contradict each other.
const statusTime = 10 * time.Millisecond

// answer is what the process has said last.
type answer struct {
	*clientv3.StatusResponse
	at time.Time
}

// status asks the process itself, not through the bridge. If it does not answer, or has ended, its
// last answer holds.
func (s *Server) status() *clientv3.StatusResponse {
	last := s.last.Load()
	if last != nil && time.Since(last.at) < statusTime {
		return last.StatusResponse
	}
	for range 3 {
		c, endpoint, err := s.client()
		if err != nil {
			break
		}
		ctx, cancel := context.WithTimeout(s.alive, time.Second)
		st, err := c.Status(ctx, endpoint)
		cancel()
		if err == nil {
			s.last.Store(&answer{st, time.Now()})
			return st
		}
	}
	if last != nil {
		return last.StatusResponse
	}
	return new(clientv3.StatusResponse)
}

// client returns a client of this member alone. It lasts until disconnect closes it: to connect for
// each question takes longer than elections do.
func (s *Server) client() (c *clientv3.Client, endpoint string, err error) {
	_, host, port := s.member.grpcAddr()
	endpoint = s.member.clientScheme() + "://" + net.JoinHostPort(host, port)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.client == nil && s.alive.Err() == nil {
		direct := *s.member
		direct.GRPCURL = endpoint
		if s.mu.client, err = NewClientV3(&direct); err != nil {
			return nil, "", err
		}
	}
	if s.mu.client == nil {
		return nil, "", s.alive.Err()
	}
	return s.mu.client, endpoint, nil
}

// disconnect closes the client of a process that has ended.
func (s *Server) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.client != nil {
		s.mu.client.Close()
		s.mu.client = nil
	}
}

func (s *Server) Lead() uint64         { return s.status().Leader }
func (s *Server) AppliedIndex() uint64 { return s.status().RaftAppliedIndex }

func (s *Server) Leader() types.ID                { return types.ID(s.Lead()) }
func (s *Server) MemberID() types.ID              { return s.id }
func (s *Server) StopNotify() <-chan struct{}     { return s.alive.Done() }
func (s *Server) ReadyNotify() <-chan struct{}    { return s.ready }
func (s *Server) ClusterVersion() *semver.Version { return semver.New("3.7.0") }

// PauseSending stops the process where it is; etcd's goes on and sends nothing.
func (s *Server) PauseSending()  { s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *Server) ResumeSending() { s.cmd.Process.Signal(syscall.SIGCONT) }

// HardStop ends the process without a word, as etcd's ends without a transfer.
func (s *Server) HardStop() { s.end(syscall.SIGKILL) }

// Stop ends it as an operator does.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// TryTransferLeadershipOnShutdown is what Stop begins with.
func (s *Server) TryTransferLeadershipOnShutdown() error {
	s.Stop()
	return nil
}

func (s *Server) end(with syscall.Signal) {
	s.cmd.Process.Signal(with)
	select {
	case <-s.alive.Done():
	case <-time.After(patience):
		s.cmd.Process.Kill()
		<-s.alive.Done()
	}
	<-s.parted
	s.disconnect()
	if network, host, port := s.member.grpcAddr(); network == "unix" {
		os.Remove(net.JoinHostPort(host, port))
	}
}
