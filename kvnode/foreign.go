package kvnode

import "errors"

// ErrForeignCluster means that this member, which has not taken part in anything
// yet, was made for another cluster than the one that it meets.
var ErrForeignCluster = errors.New("kvnode: the other members are of another cluster")

// remedy is what helps a member that waits to be let in by another cluster.
func (c *Config) remedy(joined bool) string {
	if joined {
		return startAnew
	}
	return "the ID of a cluster is made of Config.Cluster and Config.Token as they were when the data directory was made, " +
		"and they must be the same on all members: if those of the others are right, remove " + c.DataDir +
		", which holds nothing yet, and start this member with the same; a cluster that was there before, or was restored from a snapshot, " +
		"is joined with Config.Existing, after member add"
}

// waiting reports whether the others have yet to let this member in.
func (p *parts) waiting() bool {
	p.noting.Lock()
	defer p.noting.Unlock()
	return p.id.Waits()
}
