package kvnode

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/kvnode/peerurl"
	"github.com/leaderlease/go/kvnode/store"
	"github.com/leaderlease/go/kvnode/tlsconf"
)

// identity is whose data directory this is. It is written before anything else
// goes into the directory, and once more when the log has begun.
type identity struct {
	Format    int    `json:"format"`
	ClusterID uint64 `json:"cluster_id"`
	MemberID  uint64 `json:"member_id"`
	Name      string `json:"name"`
	Token     string `json:"token"`
	// Instance is drawn when the directory is made. The cluster remembers it, so
	// that a member that comes back without its directory is found out.
	Instance string `json:"instance"`
	// Started means that the log holds something: found empty, it was lost, and
	// with it votes and promises.
	Started bool `json:"started"`
	// Admitted means that enough of the others have let this member in for it to
	// take part, or that there are none: see package admission.
	Admitted bool `json:"admitted,omitempty"`
	// Alone means that the member has founded a cluster of one, and drawn its ID.
	Alone bool `json:"alone,omitempty"`
	// Joined means that the cluster was there before the member.
	Joined bool `json:"joined,omitempty"`
	// Lost is the proof that this member has forgotten what it had acknowledged: it must
	// not start again. A former version does not know of it, and starts.
	Lost string `json:"lost,omitempty"`
	// Members are the cluster as it was when the directory was made.
	Members []store.Member `json:"members"`
}

const (
	identityFile   = "member.json"
	identityFormat = 1
)

// openIdentity reads the identity of the data directory, which is locked, or makes
// one.
func openIdentity(cfg *Config) (id identity, fresh bool, err error) {
	id, err = readIdentity(cfg)
	if errors.Is(err, fs.ErrNotExist) {
		id, err = makeIdentity(cfg)
		return id, true, err
	}
	if err == nil && cfg.Existing && id.waits() {
		err = cfg.stillThere(&id)
	}
	return id, false, err
}

// readIdentity returns the identity of the data directory, fs.ErrNotExist if it
// has none.
func readIdentity(cfg *Config) (id identity, err error) {
	path := filepath.Join(cfg.DataDir, identityFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return id, fmt.Errorf("read the identity of the data directory: %w", err)
	}
	if err := json.Unmarshal(data, &id); err != nil {
		return id, fmt.Errorf("%s is damaged: %w", path, err)
	}
	err = id.check(path, cfg)
	return id, err
}

// waits reports whether the others have yet to let the member in, or it has yet to
// find out that there are none: it has not taken part in anything.
func (id *identity) waits() bool { return !id.Admitted && (id.Alone || len(id.Members) > 1) }

// check refuses a directory of another member or cluster.
func (id *identity) check(path string, cfg *Config) error {
	switch {
	case id.Format != identityFormat:
		return fmt.Errorf("%s has format %d, this version reads %d", path, id.Format, identityFormat)
	case id.Name != cfg.Name:
		return fmt.Errorf("%s is of member %q (%x), not of %q", path, id.Name, id.MemberID, cfg.Name)
	case id.Token != cfg.Token:
		return fmt.Errorf("%s is of a cluster with token %q, not %q%s", path, id.Token, cfg.Token, id.hint())
	}
	// Members come and go, so it is enough to have one in common.
	known := make(map[string]bool)
	for _, m := range id.Members {
		for _, u := range m.PeerURLs {
			known[peerurl.Address(u)] = true
		}
	}
	isKnown := func(u string) bool { return known[peerurl.Address(u)] }
	if !slices.ContainsFunc(cfg.Cluster, func(m Member) bool { return slices.ContainsFunc(m.PeerURLs, isKnown) }) {
		return fmt.Errorf("%s is of cluster %x, which has no member in common with the initial cluster%s", path, id.ClusterID, id.hint())
	}
	if id.Lost != "" {
		return fmt.Errorf("%w: %s; %s", ErrLost, id.Lost, cfg.beginAnew(id.MemberID))
	}
	return nil
}

// hint is what can be done about a directory that is not the right one.
func (id *identity) hint() string {
	if !id.waits() {
		return ""
	}
	return "; this member has never taken part in that cluster: if the configuration is right, remove the data directory, which holds nothing yet"
}

func makeIdentity(cfg *Config) (identity, error) {
	if err := errors.Join(cfg.checkName(), cfg.makeEmpty()); err != nil {
		return identity{}, err
	}
	var id identity
	if cfg.Existing {
		var err error
		if id, err = cfg.join(); err != nil {
			return id, err
		}
		id.Joined = true
	} else {
		id = cfg.found()
	}
	id.Format, id.Name, id.Token, id.Instance = identityFormat, cfg.Name, cfg.Token, rand.Text()
	if !id.Joined && len(id.Members) == 1 {
		id.drawAlone(cfg)
	}
	err := id.save(cfg.DataDir)
	return id, err
}

// found returns who this member is in a cluster that it is about to found with
// the others.
func (c *Config) found() identity {
	id := identity{
		ClusterID: clusterID(c.Cluster, c.Token),
		MemberID:  memberID(c.self().PeerURLs, c.Token),
	}
	for _, m := range c.Cluster {
		id.Members = append(id.Members, store.Member{ID: memberID(m.PeerURLs, c.Token), Name: m.Name, PeerURLs: m.PeerURLs})
	}
	slices.SortFunc(id.Members, func(a, b store.Member) int { return cmp.Compare(a.ID, b.ID) })
	return id
}

// founders are the first members as the state begins with them, the same on each
// member to the byte. Their IDs are made of what is here, so it cannot differ; how
// they are called and in which order their URLs are written can, and each says its
// name itself (publish).
func (id *identity) founders() []store.Member {
	founders := make([]store.Member, 0, len(id.Members))
	for _, m := range id.Members {
		founders = append(founders, store.Member{ID: m.ID, PeerURLs: slices.Sorted(slices.Values(m.PeerURLs))})
	}
	return founders
}

// makeEmpty makes the directory if it is missing, and refuses one that somebody
// else keeps files in.
func (c *Config) makeEmpty() error {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return c.checkEmpty()
}

// checkEmpty refuses a directory that somebody else keeps files in.
func (c *Config) checkEmpty() error {
	entries, err := os.ReadDir(c.DataDir)
	if err != nil {
		return fmt.Errorf("read the data directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == identityFile {
			return fmt.Errorf("data directory %s is a member's already (it holds %s), and must be empty or missing", c.DataDir, identityFile)
		}
		if !isNobodys(e.Name()) && e.Name() != identityFile+".tmp" {
			return fmt.Errorf("data directory %s holds %q, but no %s: it is not a member's, or has lost what told whose", c.DataDir, e.Name(), identityFile)
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

// note makes a change of the identity durable, or the node fails and it returns
// false.
func (n *Node) note(change func(*identity)) bool {
	n.noting.Lock()
	defer n.noting.Unlock()
	change(&n.id)
	if err := n.id.save(n.cfg.DataDir); err != nil {
		n.fail(err)
		return false
	}
	return true
}

// save replaces the file, so that a crash leaves the old or the new.
func (id *identity) save(dir string) error {
	data, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(dir, identityFile, data); err != nil {
		return fmt.Errorf("write the identity of the data directory: %w", err)
	}
	return nil
}

// replaceFile makes a file with that content durable.
func replaceFile(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	if err := writeSynced(path+".tmp", append(data, '\n')); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return syncDir(dir)
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// memberID derives a member's ID from where its peers find it.
func memberID(peerURLs []string, token string) uint64 {
	urls := slices.Sorted(slices.Values(peerURLs))
	return hashID("member", strings.Join(urls, ","), token)
}

// clusterID derives the cluster's ID from its first members.
func clusterID(members []Member, token string) uint64 {
	var ids []uint64
	for _, m := range members {
		ids = append(ids, memberID(m.PeerURLs, token))
	}
	slices.Sort(ids)
	return hashID("cluster", fmt.Sprintf("%x", ids), token)
}

// hashID avoids the IDs that raft keeps for itself.
func hashID(parts ...string) uint64 {
	for salt := 0; ; salt++ {
		sum := sha256.Sum256(fmt.Append(nil, salt, strings.Join(parts, "\x00")))
		if id := binary.BigEndian.Uint64(sum[:]); id != raft.None && !raft.IsLocalMsgTarget(id) {
			return id
		}
	}
}
