package kvnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// acquaintances remembers, on disk, under which instance each member has been
// met. The registry in the store says the same, but only of what is applied: of
// several members that start at once none has applied anything, and one that
// comes back without its directory must not be let in then. A member that was
// removed and added anew has another ID, so what is written here stays true.
type acquaintances struct {
	dir string
	mu  struct {
		sync.Mutex
		instances map[uint64]string
	}
}

const acquaintancesFile = "peers.json"

func openAcquaintances(dir string) (*acquaintances, error) {
	a := &acquaintances{dir: dir}
	a.mu.instances = make(map[uint64]string)
	path := filepath.Join(dir, acquaintancesFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &a.mu.instances)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return a, nil
}

// meet returns the instance under which id was met first. It returns once that
// is durable: whoever is let in may vote and promise at once.
func (a *acquaintances) meet(id uint64, instance string) (first string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if first, ok := a.mu.instances[id]; ok {
		return first, nil
	}
	a.mu.instances[id] = instance
	data, err := json.MarshalIndent(a.mu.instances, "", "  ")
	if err == nil {
		err = replaceFile(a.dir, acquaintancesFile, data)
	}
	if err != nil {
		delete(a.mu.instances, id)
		return "", fmt.Errorf("remember member %x: %w", id, err)
	}
	return instance, nil
}
