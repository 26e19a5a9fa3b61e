// Package memberdir handles data directories: their files, the lock that keeps a second process
// out, and the identity of the member that owns one. Package kvnode uses it at every start, package
// restore when it makes a directory.
//
// At a first start the identity is written before the log and the state, and again when the log has begun. So an
// interrupted start leaves a directory that the next start can use, and a log that is missing later was lost.
package memberdir

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/leaderlease/go/kvnode/internal/tlsconf"
	"github.com/leaderlease/go/raftwal"
	walfs "github.com/leaderlease/go/raftwal/fs"
)

// ErrLost means that a member has lost its votes, promises or log entries. Remove it from the
// cluster, and add it again with an empty directory.
var ErrLost = errors.New("kvnode: the member has lost its data")

// Names in a data directory, beside tlsconf.AutoFolder.
const (
	// IdentityFile has the Identity.
	IdentityFile = "member.json"
	// LogFolder has the log, StateFile the state, and SnapFolder the received snapshots (SnapName).
	LogFolder  = "wal"
	StateFile  = "store.db"
	SnapFolder = "snap"
	// lockFile is locked while a process makes or uses the directory. The log has its own lock, but
	// does not exist yet when the identity is written.
	lockFile = "lock"
)

// Dir is the path of a data directory.
type Dir string

// Path returns the path of a file in d.
func (d Dir) Path(name string) string { return filepath.Join(string(d), name) }

// Log returns the path of the log.
func (d Dir) Log() string { return d.Path(LogFolder) }

// Snaps returns the path of the folder of received snapshots.
func (d Dir) Snaps() string { return d.Path(SnapFolder) }

// SnapName returns the file name in Snaps of the snapshot at index.
func SnapName(index uint64) string { return fmt.Sprintf("%016x.snap", index) }

// SnapIndex is the reverse of SnapName. It returns false for other names.
func SnapIndex(name string) (uint64, bool) {
	digits, _ := strings.CutSuffix(name, ".snap")
	index, err := strconv.ParseUint(digits, 16, 64)
	return index, err == nil && name == SnapName(index)
}

// Lock makes the directory if it is missing, and locks it until the result is closed. It does not
// change a directory that it refuses.
func (d Dir) Lock() (io.Closer, error) {
	if err := d.CheckUnused(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(d.Path(IdentityFile)); errors.Is(err, fs.ErrNotExist) {
		if err := d.MakeEmpty(); err != nil {
			return nil, cmp.Or(d.CheckUnused(), err) // another process may have made it meanwhile
		}
	}
	dir, err := walfs.OS(string(d))
	if err != nil {
		return nil, err
	}
	lock, err := dir.Lock(lockFile)
	return lock, d.inUse(err)
}

// Hold locks the directory of a member that does not run, without changing it.
func (d Dir) Hold() (io.Closer, error) {
	lock, err := walfs.Hold(d.Path(lockFile))
	if err != nil {
		return nil, d.inUse(err)
	}
	// Former versions lock only the log.
	return lock, d.inUse(raftwal.CheckLock(d.Log()))
}

// CheckUnused returns an error if a process uses the directory. Former versions lock only the log.
func (d Dir) CheckUnused() error {
	err := walfs.CheckLock(d.Path(lockFile))
	if err == nil {
		err = raftwal.CheckLock(d.Log())
	}
	return d.inUse(err)
}

// inUse adds the directory to the error of a lock.
func (d Dir) inUse(err error) error {
	switch {
	case errors.Is(err, walfs.ErrLocked):
		return fmt.Errorf("data directory %s is in use: a member runs with it, or it is being made or restored: %w", d, err)
	case err != nil:
		return fmt.Errorf("lock the data directory %s: %w", d, err)
	default:
		return nil
	}
}

// MakeEmpty makes the directory if it is missing, and refuses one that is not empty (CheckEmpty).
func (d Dir) MakeEmpty() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return d.CheckEmpty()
}

// CheckEmpty refuses the directory of a member, and one with foreign files.
func (d Dir) CheckEmpty() error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("read the data directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == IdentityFile {
			return fmt.Errorf("data directory %s already belongs to a member (%s exists), and must be empty or missing", d, IdentityFile)
		}
		if !mayBeInEmpty(e.Name()) && e.Name() != IdentityFile+".tmp" {
			return fmt.Errorf("%s is not a kvnode data directory: it has %q, and %s is missing (after an interrupted restore or import, delete the directory and retry)", d, e.Name(), IdentityFile)
		}
	}
	return nil
}

// mayBeInEmpty reports whether a file may be in a directory without a member: the lock, lost+found, and the
// certificates that the server has made.
func mayBeInEmpty(name string) bool {
	return name == lockFile || name == "lost+found" || name == tlsconf.AutoFolder
}

// Clear removes the files of a member, and the directory itself if dirToo is set.
func (d Dir) Clear(dirToo bool) error {
	if dirToo {
		return os.RemoveAll(string(d))
	}
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		if !mayBeInEmpty(e.Name()) {
			err = errors.Join(err, os.RemoveAll(d.Path(e.Name())))
		}
	}
	return err
}

// WritableByOthers returns the first path, of the directory or a file in it, to which other users may write. They
// could change the member's votes, promises and log. users describes them, and is empty if there is no such path.
func (d Dir) WritableByOthers() (path, users string, mode fs.FileMode) {
	all := []string{string(d)}
	entries, _ := os.ReadDir(string(d)) // later reads report the error
	for _, e := range entries {
		all = append(all, d.Path(e.Name()))
	}
	for i, path := range all {
		stat := os.Lstat
		if i == 0 {
			stat = os.Stat
		}
		info, err := stat(path)
		if err != nil {
			continue
		}
		if users := otherWriters(info); users != "" {
			return path, users, info.Mode()
		}
	}
	return "", "", 0
}

// Replace writes a file durably. After a crash the file has its old or its new content.
func (d Dir) Replace(name string, data []byte) error {
	path := d.Path(name)
	if err := writeSynced(path+".tmp", append(data, '\n')); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return walfs.SyncDir(string(d))
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
