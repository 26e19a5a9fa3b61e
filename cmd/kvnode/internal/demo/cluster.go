package demo

import (
	"errors"
	"path/filepath"

	"github.com/leaderlease/go/internal/testcluster"
)

// size is the number of members.
const size = 3

// cluster is three members on loopback, and a client of each.
type cluster struct {
	*testcluster.Cluster
	dir     string
	clients []*client
	// died receives each member that ends without being told to.
	died chan *testcluster.Member
}

// newCluster lays a cluster out and starts nothing. Program starts a member.
func newCluster(program testcluster.Program, dir string) (*cluster, error) {
	c := &cluster{dir: dir, died: make(chan *testcluster.Member, 64)} // room for every run that a demo can have
	var err error
	c.Cluster, err = testcluster.New(testcluster.Config{
		Program: program, Dir: dir, Size: size, Prefix: "n", Token: "kvnode-demo", Died: c.died,
		Own: func(m *testcluster.Member) []string { return []string{"--lease-trace=" + c.trace(m)} },
	})
	if err != nil {
		return nil, err
	}
	for _, m := range c.Members() {
		cl, err := newClient(m)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.clients = append(c.clients, cl)
	}
	return c, nil
}

// trace is the file in which a member says what its lease decides.
func (c *cluster) trace(m *testcluster.Member) string { return filepath.Join(c.dir, m.Name+".trace") }

// close ends what still runs, at once. Stop comes before where that matters.
func (c *cluster) close() error {
	err := c.Kill()
	for _, cl := range c.clients {
		err = errors.Join(err, cl.close())
	}
	return err
}
