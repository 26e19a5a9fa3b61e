package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Program is a server that takes etcd's flags, such as etcd and kvnode.
type Program struct {
	Name string
	Path string
	// Args come before the flags.
	Args []string
}

// ClusterOptions describe a cluster of processes.
type ClusterOptions struct {
	Program Program
	// Dir holds a data directory and a log per member.
	Dir  string
	Size int
	// Tick is the heartbeat interval, a tenth of the election timeout.
	Tick time.Duration
	// Env is added to the environment of the members.
	Env []string
}

// Cluster is a cluster of server processes on loopback.
type Cluster struct {
	Name      string
	Endpoints []string
	members   []*process
}

type process struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{} // closed when it has ended
}

const (
	startTimeout  = 30 * time.Second
	electionTicks = 10
)

// StartCluster starts the members and waits until all agree on a leader.
func StartCluster(ctx context.Context, opts ClusterOptions) (*Cluster, error) {
	addrs, err := freeAddrs(2 * opts.Size)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: opts.Program.Name, Endpoints: addrs[:opts.Size]}
	for i := range opts.Size {
		p, err := startProcess(&opts, i, addrs)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.members = append(c.members, p)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, err := Find(ctx, c.Endpoints); err != nil {
		return nil, errors.Join(fmt.Errorf("start %d members of %s: %w\n%s", opts.Size, c.Name, err, c.logTail()), c.Close())
	}
	return c, nil
}

func startProcess(opts *ClusterOptions, i int, addrs []string) (*process, error) {
	name := fmt.Sprint("m", i+1)
	log, err := os.Create(filepath.Join(opts.Dir, opts.Program.Name+"-"+name+".log"))
	if err != nil {
		return nil, err
	}
	var cluster []string
	for j := range opts.Size {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", j+1, addrs[opts.Size+j]))
	}
	client, peer := "http://"+addrs[i], "http://"+addrs[opts.Size+i]
	args := slices.Concat(opts.Program.Args, []string{
		"--name=" + name, "--data-dir=" + filepath.Join(opts.Dir, opts.Program.Name+"-"+name),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + strings.Join(cluster, ","), "--initial-cluster-state=new", "--initial-cluster-token=leasebench",
		fmt.Sprintf("--heartbeat-interval=%d", opts.Tick.Milliseconds()),
		fmt.Sprintf("--election-timeout=%d", electionTicks*opts.Tick.Milliseconds()),
	})
	cmd := exec.Command(opts.Program.Path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), opts.Env...)
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", opts.Program.Path, err), log.Close())
	}
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // it ends by our signals
		close(p.done)
	}()
	return p, nil
}

// freeAddrs returns addresses nobody listened at a moment ago.
func freeAddrs(n int) (addrs []string, err error) {
	// All are held until all are found, so that they differ.
	var held []net.Listener
	for range n {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			break
		}
		held = append(held, l)
		addrs = append(addrs, l.Addr().String())
	}
	for _, l := range held {
		err = errors.Join(err, l.Close())
	}
	return addrs, err
}

func (p *process) signal(sig os.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Kill ends member i with SIGKILL.
func (c *Cluster) Kill(i int) error {
	err := c.members[i].signal(syscall.SIGKILL)
	<-c.members[i].done
	return err
}

// Pause stops member i with SIGSTOP: its memory and its sockets stay.
func (c *Cluster) Pause(i int) error { return c.members[i].signal(syscall.SIGSTOP) }

// ErrCannotCut says that nothing here can cut a process off.
var ErrCannotCut = errors.New("wire: processes on loopback cannot be cut off")

// Cut is not supported.
func (c *Cluster) Cut(int) error { return ErrCannotCut }

// Leader returns the number of the member that leads, -1 if they do not agree.
func (c *Cluster) Leader() int {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	roles, err := Find(ctx, c.Endpoints)
	if err != nil {
		return -1
	}
	return slices.Index(c.Endpoints, roles.Leader)
}

// Transfer hands leadership from member i to the next one.
func (c *Cluster) Transfer(i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	roles, err := Find(ctx, c.Endpoints)
	if err != nil {
		return err
	}
	client, err := newClient(c.Endpoints[i])
	if err != nil {
		return err
	}
	return errors.Join(move(ctx, client, roles.ids[c.Endpoints[(i+1)%len(c.Endpoints)]]), client.Close())
}

func move(ctx context.Context, c *clientv3.Client, to uint64) error {
	_, err := c.MoveLeader(ctx, to)
	return err
}

// Close kills all members and waits for them.
func (c *Cluster) Close() error {
	var errs []error
	for _, p := range c.members {
		errs = append(errs, p.signal(syscall.SIGKILL))
	}
	for _, p := range c.members {
		<-p.done
		errs = append(errs, p.log.Close())
	}
	return errors.Join(errs...)
}

// logTail returns the ends of the members' logs.
func (c *Cluster) logTail() string {
	const most = 600
	var all []string
	for _, p := range c.members {
		text, err := os.ReadFile(p.log.Name())
		if err == nil {
			all = append(all, string(text[max(0, len(text)-most):]))
		}
	}
	return strings.Join(all, "\n")
}
