package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
	parted chan struct{}   // closed when nobody waits for that any more
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

// status asks the process itself, not through the bridge; of one that has ended,
// or does not answer, it knows nothing.
func (s *Server) status() *clientv3.StatusResponse {
	_, host, port := s.member.grpcAddr()
	direct := *s.member
	direct.GRPCURL = s.member.clientScheme() + "://" + net.JoinHostPort(host, port)
	c, err := NewClientV3(&direct)
	if err != nil {
		return new(clientv3.StatusResponse)
	}
	defer c.Close()
	for range 3 {
		ctx, cancel := context.WithTimeout(s.alive, time.Second)
		st, err := c.Status(ctx, direct.GRPCURL)
		cancel()
		if err == nil {
			return st
		}
	}
	return new(clientv3.StatusResponse)
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
	if network, host, port := s.member.grpcAddr(); network == "unix" {
		os.Remove(net.JoinHostPort(host, port))
	}
}
