package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// Launch starts a process of kvnode in the place of etcd, where the framework
// has listened to find a free port.
func (m *Member) Launch() error {
	for _, l := range append(append([]net.Listener{m.GRPCListener}, m.PeerListeners...), m.ClientListeners...) {
		if l != nil {
			l.Close()
		}
	}
	log, err := os.OpenFile(m.DataDir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	alive, ended := context.WithCancel(context.Background())
	s := &Server{
		Cfg: m.ServerConfig, member: m, alive: alive, ready: make(chan struct{}), parted: make(chan struct{}),
		cmd: exec.Command(os.Getenv("ETCDSUITES_KVNODE"), m.flags()...),
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		ended()
		return err
	}
	go func() {
		s.cmd.Wait()
		ended()
		s.disconnect()
	}()
	if err := s.listens(); err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w: %s", err, said)
	}
	go s.watch()
	m.Server, m.Closed = s, false
	if m.Client == nil {
		m.Client, err = NewClientV3(m)
	}
	return err
}

// flags are those of kvnode that say what the framework has configured.
func (m *Member) flags() []string {
	_, host, port := m.grpcAddr()
	grpc := fmt.Sprintf("%s://%s", m.clientScheme(), net.JoinHostPort(host, port))
	state := "existing"
	if m.NewCluster {
		state = "new"
	}
	f := []string{
		"serve", "--name", m.Name, "--data-dir", m.DataDir,
		"--listen-client-urls", grpc + "," + m.ClientURLs.String(),
		"--advertise-client-urls", m.ClientURLs.String(),
		"--listen-peer-urls", m.PeerURLs.String(), "--initial-advertise-peer-urls", m.PeerURLs.String(),
		"--initial-cluster", m.InitialPeerURLsMap.String(), "--initial-cluster-token", m.InitialClusterToken, "--initial-cluster-state", state,
		"--heartbeat-interval", fmt.Sprint(m.TickMs), "--election-timeout", fmt.Sprint(m.TickMs * uint(m.ElectionTicks)),
		"--snapshot-count", fmt.Sprint(m.SnapshotCount), "--snapshot-catchup-entries", fmt.Sprint(m.SnapshotCatchUpEntries),
		"--quota-backend-bytes", fmt.Sprint(m.QuotaBackendBytes),
		"--max-txn-ops", fmt.Sprint(m.MaxTxnOps), "--max-request-bytes", fmt.Sprint(m.MaxRequestBytes),
		fmt.Sprintf("--strict-reconfig-check=%v", m.StrictReconfigCheck),
		"--feature-gates", fmt.Sprintf("LeaseCheckpoint=%v", m.configured.EnableLeaseCheckpoint),
		"--watch-progress-notify-interval", m.WatchProgressNotifyInterval.String(),
		"--corrupt-check-time", m.CorruptCheckTime.String(),
	}
	if m.ForceNewCluster {
		f = append(f, "--force-new-cluster")
	}
	if d := m.configured.GRPCKeepAliveMinTime; d > 0 {
		f = append(f, "--grpc-keepalive-min-time", d.String())
	}
	if d := m.configured.GRPCKeepAliveInterval; d > 0 {
		f = append(f, "--grpc-keepalive-interval", d.String(), "--grpc-keepalive-timeout", m.configured.GRPCKeepAliveTimeout.String())
	}
	if m.ClientTLSInfo != nil && len(m.ClientTLSInfo.CipherSuites) > 0 {
		var names []string
		for _, id := range m.ClientTLSInfo.CipherSuites {
			names = append(names, tls.CipherSuiteName(id))
		}
		f = append(f, "--cipher-suites", strings.Join(names, ","), "--tls-max-version", "TLS1.2")
	}
	return append(f, append(tlsFlags("--", m.ClientTLSInfo), tlsFlags("--peer-", m.PeerTLSInfo)...)...)
}

func tlsFlags(prefix string, info *transport.TLSInfo) []string {
	if info == nil {
		return nil
	}
	f := []string{prefix + "cert-file", info.CertFile, prefix + "key-file", info.KeyFile}
	if info.TrustedCAFile != "" {
		f = append(f, prefix+"trusted-ca-file", info.TrustedCAFile)
	}
	if info.ClientCertAuth {
		f = append(f, prefix+"client-cert-auth")
	}
	if info.ClientCertFile != "" {
		f = append(f, prefix+"client-cert-file", info.ClientCertFile, prefix+"client-key-file", info.ClientKeyFile)
	}
	return f
}
