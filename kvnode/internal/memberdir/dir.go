// Package memberdir is about data directories: what is in one, whose it is, and who may
// use it. It knows no node and no flag: its errors name the directory and what it lacks.
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

// ErrLost means that a member has lost what it had promised to the cluster: it must be
// removed, and added anew with an empty directory.
var ErrLost = errors.New("kvnode: the member has lost its data")

// What a data directory holds, besides what package kvnode keeps in files of its own.
const (
	// IdentityFile says whose it is.
	IdentityFile = "member.json"
	// LogFolder holds the log, StateFile the state, and SnapFolder the snapshots that were
	// received, each by the name of its index.
	LogFolder  = "wal"
	StateFile  = "store.db"
	SnapFolder = "snap"
	// lockFile is locked by whoever makes or runs with the data directory. The log has
	// a lock of its own, but there is no log yet when the identity is written.
	lockFile = "lock"
)

// Dir is the path of a data directory.
type Dir string

// Path returns where something in it is.
func (d Dir) Path(name string) string { return filepath.Join(string(d), name) }

// Log returns where its log is.
func (d Dir) Log() string { return d.Path(LogFolder) }

// Snaps returns where received snapshots are.
func (d Dir) Snaps() string { return d.Path(SnapFolder) }

// SnapName returns the name that a received snapshot of that index has in Snaps.
func SnapName(index uint64) string { return fmt.Sprintf("%016x.snap", index) }

// SnapIndex returns the index of the received snapshot with that name, and false if name is
// not one that SnapName returns.
func SnapIndex(name string) (uint64, bool) {
	digits, _ := strings.CutSuffix(name, ".snap")
	index, err := strconv.ParseUint(digits, 16, 64)
	return index, err == nil && name == SnapName(index)
}

// Lock makes the data directory if it is missing, and takes it for this process
// alone until the lock is closed. It leaves nothing in a directory that it refuses.
func (d Dir) Lock() (io.Closer, error) {
	if err := d.CheckUnused(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(d.Path(IdentityFile)); errors.Is(err, fs.ErrNotExist) {
		if err := d.MakeEmpty(); err != nil {
			return nil, cmp.Or(d.CheckUnused(), err) // another process may have begun meanwhile
		}
	}
	dir, err := walfs.OS(string(d))
	if err != nil {
		return nil, err
	}
	lock, err := dir.Lock(lockFile)
	return lock, d.inUse(err)
}

// Hold takes the data directory of a member that does not run, and changes nothing in it.
func (d Dir) Hold() (io.Closer, error) {
	lock, err := walfs.Hold(d.Path(lockFile))
	if err != nil {
		return nil, d.inUse(err)
	}
	// A former version locks the log alone.
	return lock, d.inUse(raftwal.CheckLock(d.Log()))
}

// CheckUnused reports whether a process runs with the data directory. One of an
// older version has locked the log alone.
func (d Dir) CheckUnused() error {
	err := walfs.CheckLock(d.Path(lockFile))
	if err == nil {
		err = raftwal.CheckLock(d.Log())
	}
	return d.inUse(err)
}

// inUse explains why a lock was not to be had.
func (d Dir) inUse(err error) error {
	switch {
	case errors.Is(err, walfs.ErrLocked):
		return fmt.Errorf("data directory %s: a member runs with it, or is being made or restored: %w", d, err)
	case err != nil:
		return fmt.Errorf("lock the data directory %s: %w", d, err)
	default:
		return nil
	}
}

// MakeEmpty makes the directory if it is missing, and refuses one that somebody
// else keeps files in.
func (d Dir) MakeEmpty() error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return d.CheckEmpty()
}

// CheckEmpty refuses a directory that somebody else keeps files in.
func (d Dir) CheckEmpty() error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("read the data directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == IdentityFile {
			return fmt.Errorf("data directory %s is a member's already (it holds %s), and must be empty or missing", d, IdentityFile)
		}
		if !isNobodys(e.Name()) && e.Name() != IdentityFile+".tmp" {
			return fmt.Errorf("data directory %s holds %q, but no %s: it is not a member's, or has lost what told whose; if it is what is left of a restore or an import that was cut short, remove it and run that again", d, e.Name(), IdentityFile)
		}
	}
	return nil
}

// isNobodys reports whether a file may be in a directory that is no member's yet,
// besides what an interrupted first start leaves behind: the lock, certificates of
// the server's own making, and what file systems keep.
func isNobodys(name string) bool {
	return name == lockFile || name == "lost+found" || name == tlsconf.AutoFolder
}

// Clear removes what may not be in a directory that is no member's, and it itself if so.
func (d Dir) Clear(dirToo bool) error {
	if dirToo {
		return os.RemoveAll(string(d))
	}
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		if !isNobodys(e.Name()) {
			err = errors.Join(err, os.RemoveAll(d.Path(e.Name())))
		}
	}
	return err
}

// Writers returns a file that others may write to, in the directory or it itself, and
// who they are: what they put there the member takes for its votes, its promises and its
// log. who is empty if there is none.
func (d Dir) Writers() (path, who string, mode fs.FileMode) {
	all := []string{string(d)}
	entries, _ := os.ReadDir(string(d)) // what cannot be read is said by whoever needs it
	for _, e := range entries {
		all = append(all, d.Path(e.Name()))
	}
	for i, path := range all {
		look := os.Lstat
		if i == 0 {
			look = os.Stat
		}
		info, err := look(path)
		if err != nil {
			continue
		}
		if who := writers(info); who != "" {
			return path, who, info.Mode()
		}
	}
	return "", "", 0
}

// Replace makes a file with that content durable; a crash leaves the old or the new.
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
