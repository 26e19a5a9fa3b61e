package inproc

import "context"

// Transfer hands leadership from member i to the next one.
func (c *Cluster) Transfer(i int) error {
	return c.nodes[i].MoveLeader(context.Background(), c.nodes[(i+1)%len(c.nodes)].ID())
}
