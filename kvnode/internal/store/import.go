package store

import (
	"cmp"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// importBytes is about how much one commit of an import writes. More: the pages that it
// changes take so much memory. Less: more commits, each of which waits for the disk.
const importBytes = 64 << 20

// Foreign is the state of another program at one moment, in the terms of a store.
type Foreign struct {
	// Index and Term, at least 1, are what the first entry after it goes on from.
	Index, Term uint64
	// Revision is the newest, and Compacted the newest that was compacted, -1 if none was.
	Revision, Compacted int64
	TTLLeases           []TTLLease
	// Versions calls visit with each version in the order of writes, and returns its error.
	// sub numbers those of one revision; a tombstone has key, mod revision and nothing
	// else. What visit is given it keeps.
	Versions func(visit func(sub uint32, kv *mvccpb.KeyValue) error) error
	// CutBytes is how much one commit writes, about. Default: 64 MiB.
	CutBytes int64
}

// Import makes the first checkpoint, without members, of a backend that holds nothing.
// If it fails, the backend holds none: it has index 0 until all is there.
func Import(b Backend, f *Foreign) error {
	m := meta{Format: FormatFirst, Revision: 1, Compacted: -1}
	var part unsaved
	for _, l := range f.TTLLeases {
		part.setLease(l)
	}
	save := func() error {
		done := part
		part = unsaved{}
		in := takeSlab()
		defer in.release()
		return b.Update(func(tx Tx) error { return saveTx(tx, &m, &done, in) })
	}
	err := f.Versions(func(sub uint32, kv *mvccpb.KeyValue) error {
		v := &Version{
			of: &chain{key: kv.GetKey()}, sub: sub, mod: kv.GetModRevision(), create: kv.GetCreateRevision(),
			number: kv.GetVersion(), lease: kv.GetLease(),
		}
		v.setValue(kv.GetValue())
		m.Revision = max(m.Revision, v.mod)
		part.versions = append(part.versions, v)
		if part.bytes += v.cost(); part.bytes < cmp.Or(f.CutBytes, importBytes) {
			return nil
		}
		return save()
	})
	if err != nil {
		return err
	}
	m.Index, m.Term, m.Revision, m.Compacted = f.Index, f.Term, f.Revision, f.Compacted
	return save()
}
