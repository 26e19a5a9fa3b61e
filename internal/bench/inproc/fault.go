package inproc

import "context"

// Kill makes member i look as if its process had died: its connections are reset
// and nothing reaches it, peers and clients alike.
func (c *Cluster) Kill(i int) error {
	c.processes[i].Kill()
	for j := range c.nodes {
		if j != i {
			c.net.Cut(host(i), host(j))
			c.net.Reset(host(i), host(j))
		}
	}
	return nil
}

// Pause makes member i look as if its process had been stopped: its connections
// stay, but nothing it might say is heard.
func (c *Cluster) Pause(i int) error {
	c.processes[i].Pause()
	return c.Cut(i)
}

// Cut holds everything between member i and the others. Clients still reach it.
func (c *Cluster) Cut(i int) error {
	for j := range c.nodes {
		if j != i {
			c.net.Cut(host(i), host(j))
		}
	}
	return nil
}

// Transfer hands leadership from member i to the next one.
func (c *Cluster) Transfer(i int) error {
	return c.nodes[i].MoveLeader(context.Background(), c.nodes[(i+1)%len(c.nodes)].ID())
}
