package kvnode

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// registrationChunk is how many bytes of entries instanceOf reads at a time.
const registrationChunk = 1 << 20

// instanceOf returns the instance that a member is registered with, "" if this member knows of none. The registry comes
// first; then a registration that is in the log and not applied yet, committed or not: right after the start, when no
// leader has told this member what is committed, the log alone knows.
//
// It reads the log only until the registry has an instance of the member, and only behind the applied index.
func (p *parts) instanceOf(id uint64) (string, error) {
	for {
		applied := p.store.Applied() // first: the registry may be newer than it says, not older
		if m := p.store.Members().ByID[id]; m.Instance != "" {
			return m.Instance, nil
		}
		instance, err := p.registrationBehind(applied, id)
		switch {
		case err == nil:
			return instance, nil
		case errors.Is(err, raft.ErrUnavailable):
			// A new leader has cut the log meanwhile.
		case !errors.Is(err, raft.ErrCompacted):
			return "", fmt.Errorf("look for the registration of member %x in the log: %w", id, err)
		case p.store.Applied() == applied:
			// The log begins with a snapshot that the store is about to restore, which can take minutes. Peers that
			// were accepted before may connect again.
			for _, s := range p.links.Peers() {
				if s.ID == id && s.Hello.Instance != "" {
					return s.Hello.Instance, nil
				}
			}
			return "", fmt.Errorf("the instance of member %x is not known until a snapshot is restored, try again then: %w", id, err)
		}
	}
}

// registrationBehind returns the instance of the first registration of a member behind an index of the log. The first
// one counts when they are applied.
func (p *parts) registrationBehind(index, id uint64) (instance string, err error) {
	last, err := p.wal.LastIndex()
	if err != nil {
		return "", err
	}
	for next := index + 1; next <= last; {
		entries, err := p.wal.Entries(next, last+1, registrationChunk)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if e.GetType() != raftpb.EntryNormal || !store.IsRegistration(e.GetData()) {
				continue
			}
			c, err := store.DecodeCommand(e.GetData())
			if err == nil && c.Register.ID == id && c.Register.Instance != "" {
				return c.Register.Instance, nil
			}
		}
		next += uint64(len(entries))
	}
	return "", nil
}
