package etcdfile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store/boltdb"
)

// ErrRefused means that Check has found a reason not to import the file.
var ErrRefused = errors.New("etcd's file cannot be imported")

// newestVersion is the newest version of etcd with a known file format.
const (
	newestVersion = "3.7"
	newestMinor   = 7
)

// Names in files of etcd up to newestVersion. Unknown ones may change the meaning of the rest.
var (
	knownBuckets = []string{"key", "meta", "lease", "alarm", "cluster", "members", "members_removed", "auth", "authUsers", "authRoles", "test"}
	knownMeta    = []string{"consistent_index", "term", "confState", "scheduledCompactRev", "finishedCompactRev", "storageVersion"}
)

// Check returns all reasons not to import the file, as one ErrRefused.
func (f *File) Check() error {
	var errs []error
	err := boltdb.Guard(func() error {
		errs = append(errs, f.checkVersion(), f.checkNames(), f.checkAuth(), f.checkAlarms())
		return nil
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

func (f *File) checkVersion() error {
	if f.StorageVersion == "" {
		return nil
	}
	major, rest, _ := strings.Cut(f.StorageVersion, ".")
	minor, _, _ := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(minor); err != nil || major != "3" || n > newestMinor {
		return fmt.Errorf("it has storage version %q, and this kvnode reads versions up to %s (import it with a newer kvnode, or downgrade etcd first)", f.StorageVersion, newestVersion)
	}
	return nil
}

func (f *File) checkNames() error {
	var unknown someNames
	err := f.tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		if !slices.Contains(knownBuckets, string(name)) {
			unknown.add(name)
		}
		return nil
	})
	if err == nil && unknown.n > 0 {
		err = fmt.Errorf("it has a bucket %s, which etcd %s does not have (import it with a newer kvnode)", &unknown, newestVersion)
	}
	var inMeta someNames
	failed := f.tx.Bucket(metaBucket).ForEach(func(name, _ []byte) error {
		if !slices.Contains(knownMeta, string(name)) {
			inMeta.add(name)
		}
		return nil
	})
	if failed == nil && inMeta.n > 0 {
		failed = fmt.Errorf("its meta says %s, which etcd %s does not know (import it with a newer kvnode)", &inMeta, newestVersion)
	}
	return errors.Join(err, failed)
}

// someNames collects names for an error: the first few, truncated, and how many there are.
type someNames struct {
	n     int
	first []string
}

const (
	namedAtMost = 8
	nameBytes   = 64
)

func (b *someNames) add(name []byte) {
	if b.n++; b.n <= namedAtMost {
		b.first = append(b.first, string(name[:min(len(name), nameBytes)]))
	}
}

func (b *someNames) list() string {
	s := fmt.Sprintf("%q", b.first)
	if more := b.n - len(b.first); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

func (b *someNames) String() string {
	if b.n == 1 {
		return strconv.Quote(b.first[0])
	}
	return b.list()
}

// checkAuth refuses users and roles, even while authentication is off: their owner relies on access
// control, which kvnode does not have.
func (f *File) checkAuth() error {
	auth := f.tx.Bucket(authBucket)
	enabled := auth != nil && string(auth.Get(authKey)) == "\x01"
	users, roles := names(f.tx.Bucket(userBucket)), names(f.tx.Bucket(roleBucket))
	if !enabled && users.n+roles.n == 0 {
		return nil
	}
	return fmt.Errorf("authentication is %s, with users %s and roles %s, and kvnode has neither: all keys would be open to all clients "+
		"(if that is acceptable, run etcdctl auth disable, user delete and role delete, and save another snapshot)",
		map[bool]string{true: "on", false: "off"}[enabled], users.list(), roles.list())
}

func names(b *bbolt.Bucket) (all someNames) {
	if b == nil {
		return all
	}
	c := b.Cursor()
	for key, _ := c.First(); key != nil; key, _ = c.Next() {
		all.add(key)
	}
	return all
}

// checkAlarms refuses a file that etcd itself considers corrupt or too large.
func (f *File) checkAlarms() error {
	alarms := names(f.tx.Bucket(alarmBucket))
	if alarms.n == 0 {
		return nil
	}
	var all []string
	for _, name := range alarms.first {
		var m pb.AlarmMember
		if err := proto.Unmarshal([]byte(name), &m); err != nil {
			return fmt.Errorf("an alarm is unreadable: %w", err)
		}
		all = append(all, fmt.Sprintf("%v at member %x", m.GetAlarm(), m.GetMemberID()))
	}
	if more := alarms.n - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("etcd has active alarms (%s): fix their cause, clear them with etcdctl alarm disarm, and save another snapshot", strings.Join(all, ", "))
}
