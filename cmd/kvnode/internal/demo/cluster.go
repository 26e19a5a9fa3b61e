package demo

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// size is the number of members.
const size = 3

// cluster is three members on loopback, and a client of each.
type cluster struct {
	dir     string
	members []*member
	clients []*client
	// died receives members whose process has ended unasked.
	died chan *member
}

// newCluster lays a cluster out and starts nothing. Program starts a member.
func newCluster(program []string, dir string) (*cluster, error) {
	ports, err := freePorts(3 * size)
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir, died: make(chan *member, 64)}
	for i := range size {
		name := fmt.Sprintf("n%d", i+1)
		c.members = append(c.members, &member{
			name: name, dir: filepath.Join(dir, name), log: filepath.Join(dir, name+".log"),
			client: ports[3*i], peer: ports[3*i+1], http: ports[3*i+2],
			died: c.died,
		})
	}
	for _, m := range c.members {
		m.argv = slices.Concat(program, c.flags(m))
		cl, err := newClient(m)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.clients = append(c.clients, cl)
	}
	return c, nil
}

// flags returns what makes a process the member m.
func (c *cluster) flags(m *member) []string {
	var initial []string
	for _, p := range c.members {
		initial = append(initial, p.name+"=http://"+p.peer)
	}
	return []string{
		"--name=" + m.name,
		"--data-dir=" + m.dir,
		"--listen-client-urls=http://" + m.client,
		"--advertise-client-urls=http://" + m.client,
		"--listen-client-http-urls=http://" + m.http,
		"--listen-peer-urls=http://" + m.peer,
		"--initial-advertise-peer-urls=http://" + m.peer,
		"--initial-cluster=" + strings.Join(initial, ","),
		"--initial-cluster-state=new",
		"--initial-cluster-token=kvnode-demo",
	}
}

// endpoints returns the members' client addresses, as etcdctl takes them.
func (c *cluster) endpoints() string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.client)
	}
	return strings.Join(all, ",")
}

func (c *cluster) start() error {
	for _, m := range c.members {
		if err := m.start(); err != nil {
			return err
		}
	}
	return nil
}

// stop stops all members in order, at the same time.
func (c *cluster) stop() error {
	errs := make([]error, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { errs[i] = m.stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// close ends what still runs, at once. Stop comes before where that matters.
func (c *cluster) close() error {
	var errs []error
	for _, m := range c.members {
		errs = append(errs, m.kill())
	}
	for _, cl := range c.clients {
		errs = append(errs, cl.close())
	}
	return errors.Join(errs...)
}
