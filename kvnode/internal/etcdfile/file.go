// Package etcdfile reads the databases of etcd's servers up to 3.7: what etcdctl's
// snapshot save writes, and member/snap/db of a data directory. It writes none.
//
// A file says which keys there are, in all versions since the last compaction, and which
// TTL leases. It says more, which is about the cluster that it is of, and is not read:
// members, the configuration of raft, the cluster's version. What would be missed is
// refused (File.Check).
//
// A file that is damaged, whatever it holds, leads to store.ErrDamaged. It must not change
// while it is open.
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

// The buckets of etcd, and what is in meta. A store of kvnode has two buckets with the
// same names, and formatKey in meta.
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

// versionForm is that of a version, which is printed as it is.
var versionForm = regexp.MustCompile(`^[0-9A-Za-z.+-]{1,64}$`)

// File is a database of etcd's. It is for one goroutine.
type File struct {
	db *bbolt.DB
	tx *bbolt.Tx
	// StorageVersion is what the file says of itself, empty before etcd 3.6.
	StorageVersion string
	// Index and Term are of the newest entry that is in it, at least 1: etcd notes no term
	// before 3.5.
	Index, Term uint64
	// Revision is the newest, and Compacted the newest that was compacted, -1 if none was.
	Revision, Compacted int64

	seen   *seen // nil until the records were read
	passes int   // how often they were
}

// Is reports whether the file path is a database of etcd's whose pages are whole. What is
// in its records may be damaged. It fails if the file cannot be read now: a process that
// runs with it, say, holds it.
func Is(path string) (bool, error) {
	db, err := boltdb.OpenAny(path)
	if err == nil {
		err = boltdb.Guard(func() error { return db.View(recognize) })
		err = errors.Join(err, db.Close())
	}
	if errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrDamaged) {
		return false, nil
	}
	return err == nil, err
}

func recognize(tx *bbolt.Tx) error {
	meta := tx.Bucket(metaBucket)
	if meta == nil || tx.Bucket(keyBucket) == nil || meta.Get(formatKey) != nil {
		return store.ErrForeign
	}
	return nil
}

// Open opens the file path, once it has read all of its pages. It returns
// store.ErrForeign if it is no database of etcd's.
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
		case n == 8 && value[0] < 0x80: // the log goes on from it
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

// readRevisions has a compaction that was begun count as much as one that has ended: etcd,
// too, goes on with it. What was the newest revision may be gone then.
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

// The fields of a TTL lease, which are numbers.
const (
	ttlID        = 1
	ttlGranted   = 2
	ttlRemaining = 3
)

// TTLLeases returns the TTL leases with what they were granted. What was left of one is
// passed over: it was so when a leader last said it, and all begin anew, as after the
// election of a leader.
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
	l.TTL = max(l.TTL, 1) // etcd, too, lengthens what is too short when it starts
	return l, nil
}
