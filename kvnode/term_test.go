package kvnode

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// A member knows after a restart in which term it was, whether or not anybody is
// there to elect a leader with: its status, its log and the headers of what it
// serves alone say so.
func TestTheTermOutlivesARestart(t *testing.T) {
	var said bytes.Buffer
	inCluster(t, 3, nil, func(t *testing.T, c *cluster) {
		term := c.leader().Term()
		for _, name := range []string{"m1", "m2", "m3"} {
			c.stop(name)
		}
		cfg := c.cfgs["m2"]
		cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		c.cfgs["m2"] = cfg
		n := c.start("m2") // alone, so that no election follows
		// A stop may transfer leadership.
		if got := n.Term(); got < term || got != n.Status().Lease.Term {
			t.Errorf("Term() after a restart = %d, want the %d of the hard state, which is %d at least", got, n.Status().Lease.Term, term)
		}
		if got := n.Status().Term; got != n.Term() {
			t.Errorf("Status().Term after a restart = %d, want %d", got, n.Term())
		}
		if r, err := n.Read(t.Context(), ReadSerializable); err != nil || r.Term != n.Term() {
			t.Errorf("Read(serializable).Term after a restart = %d, %v, want %d", r.Term, err, n.Term())
		}
		c.stop("m2")
		if want := fmt.Sprintf("msg=started member=m2 component=kvnode id=%x cluster=%x term=%d ", n.ID(), n.ClusterID(), n.Term()); !strings.Contains(said.String(), want) {
			t.Errorf("the log of a restart does not say %q:\n%s", want, said.String())
		}
	})
}
