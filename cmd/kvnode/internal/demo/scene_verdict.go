package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/linz"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// verdict: the load ends, and all that was seen is judged.
func (p *play) verdict(ctx context.Context) error {
	p.load.stop()
	if err := p.findLeader(ctx); err != nil {
		return err
	}
	final, err := p.final(ctx)
	if err != nil {
		return err
	}
	history := p.cast.recorder.History()
	begun := time.Now()
	report := p.judge(history, final)
	p.notef("searched in %s", short(time.Since(begun)))
	if files, err := report.WritePictures(p.dir); err != nil || len(files) > 0 {
		p.notef("pictures of what has no order: %s", strings.Join(files, ", "))
	}

	paths, leased := p.cast.served()
	p.claimf(someLease(paths), "%d of %d reads were served under a lease", paths[pathLease], total(paths))
	p.notef("by path: %s", list(paths))
	p.claimf(disjoint(leased), "no lease of an older term served a read after one of a newer term had")
	if err := p.sameHash(ctx); err != nil {
		return err
	}
	p.claimf(p.Stop(), "all three stopped in order")
	return p.judgeTraces()
}

// judgeTraces claims that the rules allow all that the members' leases have decided.
func (p *play) judgeTraces() error {
	var files []string
	for _, m := range p.Members() {
		files = append(files, p.trace(m))
	}
	all, err := leasetrace.ReadFiles(files...)
	if err != nil {
		return err
	}
	v := leasetrace.Judge(all)
	err = v.Err()
	if err == nil && v.Terms < 2 {
		err = fmt.Errorf("traces show %d terms with a leader, want at least 2", v.Terms)
	}
	p.claimf(err, "the rules allow each of %d decisions that the leases of %d processes have recorded", v.Events(), len(v.Processes))
	p.notef("of %d messages that arrived, %d were seen to be sent", v.Matched+v.Unmatched, v.Matched)
	return nil
}

// searchBudget bounds the search for an order of one key's operations.
const searchBudget = 10 * time.Second

// judge claims that a history is linearizable.
func (p *play) judge(history []linz.Op, final linz.Final) *linz.Report {
	report := linz.Check(history, final, searchBudget)
	err := report.Err()
	if err == nil && report.OK == 0 {
		err = errors.New("nothing was answered, so nothing was judged")
	}
	p.claimf(err, "the history of all %d clients is linearizable: %d operations on %d keys, %d without an answer",
		p.cast.size(), report.Ops, report.Keys, report.Ops-report.OK)
	return report
}

// final reads every recorded key, after the last write.
func (p *play) final(ctx context.Context) (final linz.Final, err error) {
	final.Keys = make(map[string]linz.Version)
	err = until(ctx, func(ctx context.Context) error {
		resp, err := p.clients[p.leader].Get(ctx, keyPrefix, clientv3.WithPrefix())
		if err != nil {
			return fmt.Errorf("read the final state: %w", err)
		}
		final.Revision = resp.Header.GetRevision()
		for _, kv := range resp.Kvs {
			final.Keys[string(kv.GetKey())] = linz.Version{Value: string(kv.GetValue()), Mod: kv.GetModRevision()}
		}
		return nil
	})
	return final, err
}

func (c *cast) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.actors)
}

// served counts the reads by path. It is called after the last operation.
func (c *cast) served() (paths map[string]int, all []leased) {
	c.mu.Lock()
	defer c.mu.Unlock()
	paths = make(map[string]int)
	for _, a := range c.mu.actors {
		for path, n := range a.paths {
			paths[path] += n
		}
		all = append(all, a.leased...)
	}
	return paths, all
}

// someLease fails if no read was served under a lease.
func someLease(paths map[string]int) error {
	if paths[pathLease] == 0 {
		return errors.New("so the lease has proved nothing")
	}
	return nil
}

// disjoint checks that no read under a lease began after a read under a lease of a
// later term had been answered.
func disjoint(all []leased) error {
	calls := slices.SortedFunc(slices.Values(all), func(a, b leased) int { return a.called.Compare(b.called) })
	returns := slices.SortedFunc(slices.Values(all), func(a, b leased) int { return a.returned.Compare(b.returned) })
	newest, done := leased{}, 0
	for _, r := range calls {
		for ; done < len(returns) && returns[done].returned.Before(r.called); done++ {
			if returns[done].term > newest.term {
				newest = returns[done]
			}
		}
		if r.term < newest.term {
			return fmt.Errorf("one of term %d did, %s after one of term %d", r.term, short(r.called.Sub(newest.returned)), newest.term)
		}
	}
	return nil
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// list shows counts, the greatest first.
func list[N cmp.Ordered](counts map[string]N) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %v", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}
