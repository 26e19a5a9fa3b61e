package memberdir

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/raftwal"
)

// Member is one member of the initial cluster.
type Member struct {
	Name string `json:"name"`
	// PeerURLs are where it listens for its peers: http://host:port.
	PeerURLs []string `json:"peer_urls"`
}

// DefaultToken is the token of a cluster that is given none, as in etcd.
const DefaultToken = "etcd-cluster"

// Owner is the member that a data directory has to be of, as it is configured.
type Owner struct {
	// Name is one of Cluster's.
	Name, Token string
	Cluster     []Member
}

// Self returns its entry of the initial cluster.
func (o *Owner) Self() Member {
	i := slices.IndexFunc(o.Cluster, func(m Member) bool { return m.Name == o.Name })
	return o.Cluster[i]
}

// Validate reports everything that is wrong with the cluster and this member's place in it.
func (o *Owner) Validate() []error {
	var bad problems
	names := make(map[string]bool)
	ids := make(map[uint64]string)
	for _, m := range o.Cluster {
		bad.If(m.Name == "", "a member of the initial cluster has no name")
		bad.If(names[m.Name], "member %q is twice in the initial cluster", m.Name)
		names[m.Name] = true
		err := peerurl.Check(m.PeerURLs)
		bad.If(err != nil, "member %q: %w", m.Name, err)
		id := MemberID(m.PeerURLs, o.Token)
		other, known := ids[id]
		bad.If(known && other != m.Name, "members %q and %q have the same peer URLs", other, m.Name)
		ids[id] = m.Name
	}
	own := transport.Hello{Name: o.Name, Token: o.Token}
	if names[o.Name] {
		own.PeerURLs = strings.Join(o.Self().PeerURLs, ",")
	}
	err := own.Validate()
	bad.If(err != nil, "the others would refuse this member: %w", err)
	bad.If(!names[o.Name], "member %q is not in the initial cluster", o.Name)
	return bad
}

// problems collects what is wrong with a configuration, so that one error reports all of it.
type problems []error

// If adds an error if wrong. The format gives the value and its limit.
func (p *problems) If(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Identity is whose data directory this is. It is written before anything else
// goes into the directory, and once more when the log has begun.
type Identity struct {
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

const identityFormat = 1

// Found returns who a member is in a cluster that it is about to found with the others.
func (o *Owner) Found() Identity {
	id := Identity{ClusterID: clusterID(o.Cluster, o.Token), MemberID: MemberID(o.Self().PeerURLs, o.Token)}
	for _, m := range o.Cluster {
		id.Members = append(id.Members, store.Member{ID: MemberID(m.PeerURLs, o.Token), Name: m.Name, PeerURLs: m.PeerURLs})
	}
	slices.SortFunc(id.Members, func(a, b store.Member) int { return cmp.Compare(a.ID, b.ID) })
	return id
}

// Begin makes id that of a new directory, with that instance.
func (id *Identity) Begin(o *Owner, instance string) {
	id.Format, id.Name, id.Token, id.Instance = identityFormat, o.Name, o.Token, instance
}

// DrawAlone makes id that of a cluster of one, with an ID that no other founding has: if this member was one of several
// before and has lost its directory, those refuse it as a member of another cluster.
func (id *Identity) DrawAlone() {
	id.Alone, id.Admitted = true, true
	id.ClusterID = HashID("alone", fmt.Sprintf("%x", id.ClusterID), id.Instance)
}

// Founders are the first members as the state begins with them, the same on each
// member to the byte. Their IDs are made of what is here, so it cannot differ; how
// they are called and in which order their URLs are written can, and each says its
// name itself once it is there.
func (id *Identity) Founders() []store.Member {
	founders := make([]store.Member, 0, len(id.Members))
	for _, m := range id.Members {
		founders = append(founders, store.Member{ID: m.ID, PeerURLs: slices.Sorted(slices.Values(m.PeerURLs))})
	}
	return founders
}

// Waits reports whether the others have yet to let the member in: it has not taken part in anything. A former version
// also had founders of one wait.
func (id *Identity) Waits() bool { return !id.Admitted && len(id.Members) > 1 }

// Read returns the identity of the data directory, fs.ErrNotExist if it has none.
func (d Dir) Read() (id Identity, err error) {
	path := d.Path(IdentityFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return id, fmt.Errorf("read the identity of the data directory: %w", err)
	}
	if err := json.Unmarshal(data, &id); err != nil {
		return id, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if id.Format != identityFormat {
		return id, fmt.Errorf("%s has format %d, this version reads %d: use the version that wrote it", path, id.Format, identityFormat)
	}
	return id, nil
}

// Write replaces the identity, so that a crash leaves the old or the new.
func (d Dir) Write(id *Identity) error {
	data, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	if err := d.Replace(IdentityFile, data); err != nil {
		return fmt.Errorf("write the identity of the data directory: %w", err)
	}
	return nil
}

// Check refuses the identity of another member or cluster, and that of a member that has
// lost its data.
func (d Dir) Check(id *Identity, o *Owner) error {
	path, hint := d.Path(IdentityFile), ""
	if id.Waits() {
		hint = "; this member has never taken part in that cluster: if the configuration is right, remove the data directory, which holds nothing yet"
	}
	switch {
	case id.Name != o.Name:
		return fmt.Errorf("%s is of member %q (%x), not of %q", path, id.Name, id.MemberID, o.Name)
	case id.Token != o.Token:
		return fmt.Errorf("%s is of a cluster with token %q, not %q%s", path, id.Token, o.Token, hint)
	}
	// Members come and go, so it is enough to have one in common.
	known := make(map[string]bool)
	for _, m := range id.Members {
		for _, u := range m.PeerURLs {
			known[peerurl.Address(u)] = true
		}
	}
	isKnown := func(u string) bool { return known[peerurl.Address(u)] }
	if !slices.ContainsFunc(o.Cluster, func(m Member) bool { return slices.ContainsFunc(m.PeerURLs, isKnown) }) {
		return fmt.Errorf("%s is of cluster %x, which has no member in common with the initial cluster%s", path, id.ClusterID, hint)
	}
	if id.Lost != "" {
		return fmt.Errorf("%w: %s", ErrLost, id.Lost)
	}
	return nil
}

// CheckLog refuses a directory whose log is gone although the member has run before.
func (d Dir) CheckLog(id *Identity) error {
	if _, err := os.Stat(d.Log()); id.Started && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the log %s is missing, but this member has run before", ErrLost, d.Log())
	}
	return nil
}

// IsFresh reports whether the log has not begun, and refuses one that has vanished: the
// member may have voted and promised. applied is what the state has.
func (d Dir) IsFresh(id *Identity, log *raftwal.Log, applied uint64) (bool, error) {
	last, err := log.LastIndex()
	if err != nil {
		return false, err
	}
	hard, _, err := log.InitialState()
	if err != nil {
		return false, err
	}
	if last > 0 || !raft.IsEmptyHardState(hard) {
		return false, nil
	}
	if id.Started || applied > 0 {
		return false, fmt.Errorf("%w: the log in %s is empty, but this member has run before", ErrLost, d.Log())
	}
	return true, nil
}

// MemberID derives a member's ID from where its peers find it.
func MemberID(peerURLs []string, token string) uint64 {
	urls := slices.Sorted(slices.Values(peerURLs))
	return HashID("member", strings.Join(urls, ","), token)
}

// clusterID derives the cluster's ID from its first members.
func clusterID(members []Member, token string) uint64 {
	var ids []uint64
	for _, m := range members {
		ids = append(ids, MemberID(m.PeerURLs, token))
	}
	slices.Sort(ids)
	return HashID("cluster", fmt.Sprintf("%x", ids), token)
}

// HashID avoids the IDs that raft keeps for itself.
func HashID(parts ...string) uint64 {
	for salt := 0; ; salt++ {
		sum := sha256.Sum256(fmt.Append(nil, salt, strings.Join(parts, "\x00")))
		if id := binary.BigEndian.Uint64(sum[:]); id != raft.None && !raft.IsLocalMsgTarget(id) {
			return id
		}
	}
}
