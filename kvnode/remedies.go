package kvnode

import (
	"errors"
	"fmt"
	"strings"
)

// What an operator is to do, as errors and log lines say it. Fields of Config are called so;
// who has flags for them puts these in their place (cmd/kvnode).

// advise says what to do about a member that must not go on with its directory.
func (c *Config) advise(err error, id uint64) error {
	if errors.Is(err, ErrLost) {
		return fmt.Errorf("%w; %s", err, c.beginAnew(id))
	}
	return err
}

// beginAnew is what to do about a member that must not go on with its directory.
func (c *Config) beginAnew(id uint64) string {
	return fmt.Sprintf("remove it from the cluster (member remove %x) unless that is done, add it anew (member add %s --peer-urls=%s), "+
		"remove %s, and start it with Config.Existing", id, c.Name, strings.Join(c.self().PeerURLs, ","), c.DataDir)
}

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

// startAnew is what to do about a member that has joined nothing.
const startAnew = "remove the data directory, which holds nothing yet, add the member to the cluster (member add) " +
	"unless that is done, and start it with Config.Existing"
