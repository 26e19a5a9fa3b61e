package servers

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Death is a way in which a leader dies.
type Death struct {
	Name  string
	Short string // on the command line
	// Needs is what the cluster must have.
	Needs Needs
	// Members is the size of the cluster, 0 for any.
	Members int
	// happen makes the leader die. ended, if set, returns once the leader's process has
	// ended as a consequence.
	happen, ended func(ctx context.Context, c *Cluster, leader int) error
	// undo brings the leader back, which is measured as well.
	undo     func(c *Cluster, leader int) error
	UndoName string
}

// Needs is a resource that each member must have for itself.
type Needs string

// The needs, besides none.
const (
	Cables Needs = "networks of their own"
	Disks  Needs = "disks of their own"
)

// All lists the ways in which a leader dies. Ways without requirements come first.
var All = []Death{
	{Name: "kill -9", Short: "kill", happen: kill},
	{Name: "panic", Short: "panic", happen: func(_ context.Context, c *Cluster, i int) error { return c.Members()[i].Crash() }},
	{Name: "SIGTERM", Short: "term", happen: terminate},
	{
		Name: "SIGSTOP", Short: "stop", happen: func(_ context.Context, c *Cluster, i int) error { return c.Members()[i].Pause() },
		UndoName: "SIGCONT of it", undo: func(c *Cluster, i int) error { return c.Members()[i].Resume() },
	},
	{
		Name: "cable pulled", Short: "cable", Needs: Cables, happen: func(_ context.Context, c *Cluster, i int) error { return c.cables.pull(i) },
		UndoName: "cable back in", undo: func(c *Cluster, i int) error { return c.cables.plug(i) },
	},
	{Name: "disk fails", Short: "disk", Needs: Disks, happen: func(_ context.Context, c *Cluster, i int) error { return c.disks[i].fail() }, ended: ended},
	{Name: "two of five", Short: "two", Members: 5, happen: killTwo},
}

// Shorts are the names for the command line.
func Shorts() (all []string) {
	for _, d := range All {
		all = append(all, d.Short)
	}
	return all
}

// Named returns the deaths with these names, in the order of All.
func Named(shorts []string) (all []Death, err error) {
	for _, s := range shorts {
		if !slices.Contains(Shorts(), s) {
			return nil, fmt.Errorf("death %q must be one of %v", s, Shorts())
		}
	}
	for _, d := range All {
		if slices.Contains(shorts, d.Short) {
			all = append(all, d)
		}
	}
	return all, nil
}

func kill(_ context.Context, c *Cluster, leader int) error { return c.Members()[leader].KillChild() }

// killTwo kills the leader and another member.
func killTwo(ctx context.Context, c *Cluster, leader int) error {
	other := make(chan error, 1)
	go func() { other <- kill(ctx, c, (leader+1)%len(c.Members())) }()
	err := kill(ctx, c, leader)
	if two := <-other; err == nil {
		err = two
	}
	return err
}

// endTimeout is how long a member may take to end after SIGTERM, or after its disk fails.
const endTimeout = 10 * time.Second

func terminate(ctx context.Context, c *Cluster, leader int) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_, err := c.Members()[leader].Terminate(ctx)
	return err
}

// ended waits until the leader ends by itself.
func ended(ctx context.Context, c *Cluster, leader int) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_, err := c.Members()[leader].WaitExit(ctx)
	return err
}
