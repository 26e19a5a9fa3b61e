package kvnode

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

func (c *Config) dir() memberdir.Dir { return memberdir.Dir(c.DataDir) }

func (c *Config) owner() *memberdir.Owner {
	return &memberdir.Owner{Name: c.Name, Token: c.Token, Cluster: c.Cluster}
}

// openIdentity reads the identity of the locked data directory. If the directory has none, it creates one.
func openIdentity(cfg *Config) (memberdir.Identity, error) {
	id, err := readIdentity(cfg)
	if errors.Is(err, fs.ErrNotExist) {
		return makeIdentity(cfg)
	}
	if err == nil && cfg.Existing && id.Waits() {
		err = cfg.checkJoins(&id)
	}
	return id, err
}

// readIdentity returns the identity of the data directory, or fs.ErrNotExist if it has none.
func readIdentity(cfg *Config) (memberdir.Identity, error) {
	id, err := cfg.dir().Read()
	if err == nil {
		err = cfg.advise(cfg.dir().Check(&id, cfg.owner()), id.MemberID)
	}
	return id, err
}

func makeIdentity(cfg *Config) (id memberdir.Identity, err error) {
	if err := errors.Join(transport.CheckName(cfg.Name), cfg.dir().MakeEmpty()); err != nil {
		return id, err
	}
	if cfg.Existing {
		if id, err = cfg.joiner().Join(); err != nil {
			return id, err
		}
		id.Joined = true
	} else {
		id = cfg.owner().FoundingIdentity()
	}
	id.Begin(cfg.owner(), rand.Text())
	if !id.Joined && len(id.Members) == 1 {
		id.SetAlone()
	}
	err = cfg.dir().Write(&id)
	return id, err
}

// saveIdentity makes a change of the identity durable. If that fails, it ends the node and returns false.
func saveIdentity(n *Node, change func(*memberdir.Identity)) bool {
	n.idMu.Lock()
	defer n.idMu.Unlock()
	change(&n.id)
	if err := n.cfg.dir().Write(&n.id); err != nil {
		n.life.Fail(err)
		return false
	}
	return true
}

// CheckDataDir returns the error with which Start would refuse DataDir. If DataDir does not exist yet, it checks
// only Name. Start refuses a directory of another member or cluster, one with files of another program, one
// that has lost its log, and one that is in use. CheckDataDir changes nothing, connects to no peer, and
// does not read the log.
func (c Config) CheckDataDir() error {
	c = c.WithDefaults()
	if _, err := os.Stat(c.DataDir); errors.Is(err, fs.ErrNotExist) {
		return transport.CheckName(c.Name)
	}
	id, err := readIdentity(&c)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.Join(transport.CheckName(c.Name), c.dir().CheckEmpty(), c.dir().CheckUnused())
	}
	if err == nil {
		err = c.advise(c.dir().CheckLog(&id), id.MemberID)
	}
	return errors.Join(err, c.dir().CheckUnused())
}

// warnOfWriters logs a warning if other users may write to the data directory.
func (c *Config) warnOfWriters() {
	if path, users, mode := c.dir().WritableByOthers(); users != "" {
		c.Logger.With("component", "kvnode").Warn("other users may write to the data directory, and so change this member's votes and promises",
			"path", path, "users", users, "mode", mode.String(), "advice", "let this process's user own it, and take the permission away: chmod -R go-w "+c.DataDir)
	}
}
