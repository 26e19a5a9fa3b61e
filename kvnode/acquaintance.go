package kvnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/leaderlease/go/kvnode/memberdir"
)

// acquaintances remembers, on disk, under which instance each member has been
// met. The registry in the store says the same, but only of what is applied: of
// several members that start at once none has applied anything, and one that
// comes back without its directory must not be let in then. A member that was
// removed and added anew has another ID, so what is written here stays true.
type acquaintances struct {
	dir  memberdir.Dir
	lost bool // there was no file
	// mu is held while the file is written, so that of two peers who come at once neither writes a
	// file without the other. The goroutines of connections wait for it, never the loop.
	mu struct {
		sync.Mutex
		instances map[uint64]string // never another one for an ID; what is here is in the file
	}
}

const acquaintancesFile = "peers.json"

func openAcquaintances(dir memberdir.Dir) (*acquaintances, error) {
	a := &acquaintances{dir: dir}
	a.mu.instances = make(map[uint64]string)
	path := dir.Path(acquaintancesFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		a.lost = true
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &a.mu.instances)
	}
	// One that does not decode stops the start: whom it named could come back without a directory
	// and be let in. Who removes it says so, and recall makes up for what it can.
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return a, nil
}

// meet returns the instance under which id was met first. It returns once that
// is durable: whoever is let in may vote and promise at once.
// The file is replaced as a whole: a crash leaves the old one, and the peer, which was not let
// in, comes again. One that cannot be written lets nobody in whom
// the last checkpoint does not know (peers.Admit).
func (a *acquaintances) meet(id uint64, instance string) (first string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if first, ok := a.mu.instances[id]; ok {
		return first, nil // nearly always: the file is written once for each member
	}
	a.mu.instances[id] = instance
	data, err := json.MarshalIndent(a.mu.instances, "", "  ")
	if err == nil {
		err = a.dir.Replace(acquaintancesFile, data)
	}
	if err != nil {
		delete(a.mu.instances, id) // or the next try would find it, and take it for durable
		return "", fmt.Errorf("remember member %x: %w", id, err)
	}
	return instance, nil
}

// recall makes up for a file that is gone, as far as the registry in the last
// checkpoint can: it knows all that were in the cluster by then. A restored snapshot,
// whose members have not started, has none to recall.
func (a *acquaintances) recall(b *book, log *slog.Logger) error {
	var names []string
	for id, m := range b.store.Members().ByID {
		if !a.lost || id == b.self || m.Instance == "" {
			continue
		}
		if _, err := a.meet(id, m.Instance); err != nil {
			return err
		}
		names = append(names, b.nameOf(id))
	}
	if len(names) > 0 {
		slices.Sort(names)
		log.Warn(acquaintancesFile+", which says whom this member has met, was gone, and is made again of the registry in the last checkpoint; "+
			"if a peer that is not among these has lost its data directory, too, do not start it: remove it and add it anew", "known", names)
	}
	return nil
}
