// Package etcdfile reads the databases of etcd servers up to version 3.7: the files of etcdctl
// snapshot save, and member/snap/db of a data directory. It writes none.
//
// It reads all versions of keys since the last compaction, and the TTL leases. It ignores data
// about the old cluster: members, raft's configuration, the cluster version. File.Check refuses
// files with data that users would miss, such as users and roles.
//
// Damage leads to store.ErrDamaged. A file must not change while it is open.
package etcdfile

import (
	"errors"
	"fmt"
	"math"
	"regexp"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// Buckets of etcd, and keys in meta. A store of kvnode has buckets with two of these names, and
// formatKey in meta.
var (
	keyBucket   = []byte("key")
	metaBucket  = []byte("meta")
	ttlBucket   = []byte("lease")
	alarmBucket = []byte("alarm")
	authBucket  = []byte("auth")
	userBucket  = []byte("authUsers")
	roleBucket  = []byte("authRoles")

	formatKey    = []byte("kvnode-format")
	indexKey     = []byte("consistent_index")
	termKey      = []byte("term") // since 3.5
	scheduledKey = []byte("scheduledCompactRev")
	finishedKey  = []byte("finishedCompactRev")
	versionKey   = []byte("storageVersion") // since 3.6
	authKey      = []byte("authEnabled")
)

// versionForm matches versions. It keeps control characters out of messages.
var versionForm = regexp.MustCompile(`^[0-9A-Za-z.+-]{1,64}$`)

// File is an open database of etcd. It is for one goroutine.
type File struct {
	db *bbolt.DB
	tx *bbolt.Tx
	// StorageVersion is the storage version of the file, empty before etcd 3.6.
	StorageVersion string
	// Index and Term belong to the newest entry in the file. Both are at least 1: etcd stores
	// no term before 3.5.
	Index, Term uint64
	// Revision is the newest revision, and Compacted the newest compacted one, -1 for none.
	Revision, Compacted int64

	found  *findings // nil until Versions has read the records
	passes int       // how often the records were read
}

// Is reports whether the file path is a database of etcd with consistent pages. It does not check
// the records. A file that cannot be read is not one.
func Is(path string) bool {
	db, err := boltdb.OpenAny(path)
	if err != nil {
		return false
	}
	err = boltdb.Guard(func() error { return db.View(recognize) })
	return errors.Join(err, db.Close()) == nil
}

func recognize(tx *bbolt.Tx) error {
	meta := tx.Bucket(metaBucket)
	if meta == nil || tx.Bucket(keyBucket) == nil || meta.Get(formatKey) != nil {
		return store.ErrForeign
	}
	return nil
}

// Open opens the file path and checks all of its pages. It returns store.ErrForeign if it is not a
// database of etcd.
func Open(path string) (*File, error) {
	db, err := boltdb.OpenAny(path)
	if err != nil {
		return nil, err
	}
	f := &File{db: db}
	err = boltdb.Guard(func() error {
		if f.tx, err = db.Begin(false); err != nil {
			return err
		}
		return f.readMeta()
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error {
	var err error
	if f.tx != nil {
		err = f.tx.Rollback()
	}
	return errors.Join(err, f.db.Close())
}

func (f *File) readMeta() error {
	err := recognize(f.tx)
	if err != nil {
		return err
	}
	meta, keys := f.tx.Bucket(metaBucket), f.tx.Bucket(keyBucket)
	number := func(key []byte, missing uint64) uint64 {
		value := meta.Get(key)
		switch n := len(value); {
		case n == 0:
			return missing
		case n == 8 && value[0] < 0x80: // the log continues from it
			return order.Uint64(value)
		case n == 8:
			err = fmt.Errorf("%w: %s in meta is %d, more than %d", store.ErrDamaged, key, order.Uint64(value), int64(math.MaxInt64))
			return 0
		default:
			err = fmt.Errorf("%w: %s in meta has %d bytes, want 8", store.ErrDamaged, key, len(value))
			return 0
		}
	}
	version := meta.Get(versionKey)
	if len(version) > 0 && !versionForm.Match(version) {
		return fmt.Errorf("%w: storageVersion in meta is %.64q, and no version", store.ErrDamaged, version)
	}
	f.StorageVersion = string(version)
	f.Index, f.Term = max(number(indexKey, 1), 1), max(number(termKey, 1), 1)
	if err != nil {
		return err
	}
	return f.readRevisions(meta, keys)
}

// readRevisions treats a compaction that was started like one that has finished, because etcd would
// resume it. The record of the newest revision may then be missing.
func (f *File) readRevisions(meta, keys *bbolt.Bucket) error {
	f.Revision, f.Compacted = 1, -1
	last, _ := keys.Cursor().Last()
	for i, key := range [][]byte{last, meta.Get(scheduledKey), meta.Get(finishedKey)} {
		if key == nil {
			continue
		}
		rev, err := parseRevision(key)
		if err != nil {
			return err
		}
		f.Revision = max(f.Revision, rev.main)
		if i > 0 {
			f.Compacted = max(f.Compacted, rev.main)
		}
	}
	return nil
}

// The fields of a TTL lease. All are varints.
const (
	ttlID        = 1
	ttlGranted   = 2
	ttlRemaining = 3
)

// TTLLeases returns the TTL leases with their full TTLs. The remaining time in the file is ignored,
// since it was valid at the last lease checkpoint only. All leases restart, as after an election.
func (f *File) TTLLeases() (all []store.TTLLease, err error) {
	err = boltdb.Guard(func() error {
		bucket := f.tx.Bucket(ttlBucket)
		if bucket == nil {
			return nil
		}
		return bucket.ForEach(func(key, value []byte) error {
			l, err := decodeTTL(key, value)
			all = append(all, l)
			return err
		})
	})
	return all, err
}

func decodeTTL(key, value []byte) (store.TTLLease, error) {
	var l store.TTLLease
	for rest := value; len(rest) > 0; {
		field, kind, n := protowire.ConsumeTag(rest)
		if n < 0 || kind != protowire.VarintType || field > ttlRemaining {
			return l, fmt.Errorf("%w: TTL lease %x has an unknown field", store.ErrDamaged, key)
		}
		x, m := protowire.ConsumeVarint(rest[n:])
		if m < 0 {
			return l, fmt.Errorf("%w: TTL lease %x is cut off", store.ErrDamaged, key)
		}
		rest = rest[n+m:]
		switch field {
		case ttlID:
			l.ID = int64(x)
		case ttlGranted:
			l.TTL = int64(x)
		}
	}
	if len(key) != 8 || int64(order.Uint64(key)) != l.ID || l.ID == 0 || l.TTL > store.MaxTTL {
		return l, fmt.Errorf("%w: TTL lease %x says ID %x and TTL %d, of at most %d", store.ErrDamaged, key, uint64(l.ID), l.TTL, int64(store.MaxTTL))
	}
	l.TTL = max(l.TTL, 1) // etcd raises such a TTL at its start, too
	return l, nil
}
