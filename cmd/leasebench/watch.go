package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/internal/bench/suite"
)

// watchFlags are the conditions of watch fan-out.
type watchFlags struct {
	besideFlags
	watchers, streams []int
	rate              float64
}

func newWatch(c *common) *cobra.Command {
	f := &watchFlags{}
	cmd := c.part(&cobra.Command{
		Use: "watch", Short: "watch fan-out: one writer and up to 1,000 watchers, side by side",
		Long: watchLong, Example: "  leasebench watch --start etcd=./etcd\n  leasebench watch --start etcd=./etcd --watchers 1000 --streams 1,10,100",
	}, "watchers", f.add)
	f.register(cmd, []int{3})
	cmd.Flags().IntSliceVar(&f.watchers, "watchers", watcherCounts(), "numbers of watchers")
	cmd.Flags().IntSliceVar(&f.streams, "streams", streamCounts(), "over how many streams they are shared out, each on its own connection, as far as there are watchers enough")
	cmd.Flags().Float64Var(&f.rate, "rate", watchRate, "puts per second of the open loop")
	return cmd
}

func watcherCounts() []int { return []int{1, 100, 1000} }
func streamCounts() []int  { return []int{1, 20} }

const (
	watchRate   = 50
	maxWatchers = 100_000
	maxStreams  = 1000
)

// add plans it.
func (f *watchFlags) add(s *suite.Suite, t suite.Timing, quick bool) error {
	b, err := f.plan(t)
	if err != nil {
		return err
	}
	watchers := f.watchers
	if quick {
		watchers = []int{1000}
	}
	if err := inRange("watchers", watchers, maxWatchers); err != nil {
		return err
	}
	if err := inRange("streams", f.streams, maxStreams); err != nil {
		return err
	}
	if f.rate <= 0 {
		return fmt.Errorf("rate %v must be positive", f.rate)
	}
	p := suite.WatchPlan{Beside: b, Audit: true}
	for _, n := range watchers {
		for _, streams := range f.streams {
			if streams <= n {
				p.Works = append(p.Works,
					suite.WatchWork{Watchers: n, Streams: streams},
					suite.WatchWork{Watchers: n, Streams: streams, Rate: f.rate})
			}
		}
	}
	if len(p.Works) == 0 {
		return fmt.Errorf("streams %v must not all be more than watchers %v", f.streams, watchers)
	}
	s.Watch(p)
	return nil
}
