package kvnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/kvnode/peerurl"
	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/transport"
)

const (
	// vouchPause is the least time between two rounds of questions. Shorter: strangers
	// have members ask each other more often. Longer: a new member waits for longer, up
	// to a round, at those who lag behind.
	vouchPause = time.Second
	// vouchRenewal is the most time between two of them while somebody is let in, or
	// looked for, on others' word, or needs to be, as nobody leads who hears this member.
	// Longer: who lost that word stays in for longer.
	vouchRenewal = 10 * time.Second
	// minLonely is for how many rounds in a row this member must not be led, and there
	// be no majority, before those count whom Config.Cluster alone names. Less:
	// somebody who keeps the others from answering for a moment brings them in.
	minLonely = 3
)

// asker asks the members that this one knows who is in the cluster, and where.
type asker struct {
	*parts
	routes *routes
}

// run asks the others who is in the cluster each time that somebody calls whom this
// member does not know, or does not expect there, and for as long as somebody is in on
// their word, or nobody has answered who could help. One round is under way at a time.
func (a *asker) run(ctx context.Context) {
	lonely := 0
	for {
		var renewal <-chan time.Time
		if a.routes.follow() || lonely > 0 {
			renewal = time.After(vouchRenewal)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.book.due:
		case <-renewal:
		}
		pause := time.NewTimer(vouchPause)
		lonely = a.askRosters(ctx, lonely)
		a.routes.follow() // whoever is refused now is not kept until the pause is over
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// askRosters asks all members that this one knows, and returns how many rounds in a
// row, lonely before this one, it was not led, and there was no majority. After
// minLonely those are asked whom only Config.Cluster names: if there is a majority,
// its members know who leads, or can elect a leader, and who has left the cluster has
// no say.
func (a *asker) askRosters(ctx context.Context, lonely int) int {
	known, led := a.book.known(), a.isLed()
	there := a.askAll(ctx, known, false)
	if a.isMajority(known, there) || led || a.isLed() {
		a.book.keep(known)
		return 0
	}
	if lonely++; lonely < minLonely {
		a.book.keep(known)
		return lonely
	}
	named := a.namedByFlags(known, there)
	answered := a.askAll(ctx, named, true)
	a.book.keep(slices.Concat(known, named))
	a.book.note(flagsPlace, roster{members: placed(named, answered), applied: math.MaxUint64, flags: true})
	return lonely
}

// flagsPlace is whose roster says where Config.Cluster has members that are
// registered elsewhere.
const flagsPlace = "Config.Cluster"

// placed are those who are known by a name that Config.Cluster has where they have
// answered. Without a majority, nobody can register that they have moved, and if most
// of them have, there is none before they find each other.
func placed(named []store.Member, answered []bool) (moved []store.Member) {
	for i, there := range named {
		if there.ID != raft.None && answered[i] {
			moved = append(moved, store.Member{ID: there.ID, PeerURLs: there.PeerURLs})
		}
	}
	return moved
}

// isLed reports whether there is a leader that hears this member, for whoever cannot
// answer gets nothing from it, and that nobody is needed to find whom Config.Cluster
// alone names: they are, until the registry has them, however long that takes.
func (a *asker) isLed() bool {
	lead := a.Leader()
	hears := func(p transport.PeerStatus) bool { return p.ID == lead && p.Connected }
	switch {
	case lead == raft.None || lead != a.book.self && !slices.ContainsFunc(a.links.Peers(), hears):
		return false
	case a.book.isFlagged(lead):
		return false
	default:
		return !slices.ContainsFunc(a.book.known(), func(m store.Member) bool { return a.book.isFlagged(m.ID) })
	}
}

// isMajority reports whether most of the voters have answered, counting this member.
func (a *asker) isMajority(known []store.Member, answered []bool) bool {
	voters, there := 0, 0
	for i, m := range known {
		if m.Learner {
			continue
		}
		voters++
		if answered[i] || m.ID == a.book.self {
			there++
		}
	}
	return there > voters/2
}

// namedByFlags are the others in Config.Cluster, with the IDs under which they are
// known by that name, as far as they are not known to be there, and nobody else was
// there, as known says: another one may be registered where they are now.
func (a *asker) namedByFlags(known []store.Member, there []bool) (named []store.Member) {
	for _, m := range a.cfg.Cluster {
		isTaken := func(u string) bool {
			for i, k := range known {
				if peerurl.AreAmong([]string{u}, k.PeerURLs) && (there[i] || k.Name == m.Name) {
					return true
				}
			}
			return false
		}
		urls := slices.DeleteFunc(slices.Clone(m.PeerURLs), isTaken)
		if m.Name == a.book.name || len(urls) == 0 {
			continue
		}
		other := store.Member{Name: m.Name, PeerURLs: urls}
		if at := slices.IndexFunc(known, func(k store.Member) bool { return k.Name == m.Name && m.Name != "" }); at >= 0 {
			other.ID = known[at].ID
		}
		named = append(named, other)
	}
	return named
}

// askAll asks all at once, and returns which have answered within an election timeout,
// as far as those that answered have said who they are.
func (a *asker) askAll(ctx context.Context, members []store.Member, flags bool) []bool {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ElectionTimeout)
	defer cancel()
	answered := make([]bool, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		if m.ID != a.book.self {
			wg.Go(func() { answered[i] = a.askRoster(ctx, &m, flags) })
		}
	}
	wg.Wait()
	return answered
}

// askRoster keeps the roster of whoever answers first at one of a member's URLs, and
// reports whether that is the member. Whoever is of this cluster may say who is in it,
// but is not there in the place of another one: at the old address of a member there
// may be one that has moved, and this one, too, gets an answer from itself.
func (a *asker) askRoster(ctx context.Context, m *store.Member, flags bool) bool {
	return a.cfg.askFirst(ctx, peerurl.HostPorts(m.PeerURLs), func(addr string, r transport.Roster) error {
		if r.ClusterID != a.ClusterID() {
			return fmt.Errorf("cluster %x answers at %s", r.ClusterID, addr)
		}
		said := roster{applied: r.Applied, flags: flags}
		if err := json.Unmarshal(r.Members, &said.members); err != nil {
			return err
		}
		a.book.note(addr, said)
		if r.From != 0 && m.ID != raft.None && r.From != m.ID {
			return fmt.Errorf("member %x answers at %s, not %x", r.From, addr, m.ID)
		}
		return nil
	}) == nil
}

// askFirst asks for the roster at all addresses at once, as one of them may hang, and
// passes what is said to use, one after the other until that returns nil. Its error is
// that of each address.
func (c *Config) askFirst(ctx context.Context, addrs []string, use func(addr string, r transport.Roster) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		done bool
		errs = make([]error, len(addrs))
	)
	for i, addr := range addrs {
		wg.Go(func() {
			r, err := transport.Ask(ctx, c.Dial, addr)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !done {
				if err = use(addr, r); err == nil {
					done = true
					cancel()
				}
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if done {
		return nil
	}
	if len(addrs) == 0 {
		return errors.New("no peer URL is known")
	}
	return errors.Join(errs...)
}
