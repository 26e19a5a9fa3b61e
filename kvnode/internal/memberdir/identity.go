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

	"github.com/leaderlease/go/internal/problems"
	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
	"github.com/leaderlease/go/raftwal"
)

// Member is one member of the initial cluster.
type Member struct {
	Name string `json:"name"`
	// PeerURLs are its listeners for peers: http://host:port.
	PeerURLs []string `json:"peer_urls"`
}

// DefaultToken is the default token of a cluster, as in etcd.
const DefaultToken = "etcd-cluster"

// Owner is the configured member to which a data directory must belong.
type Owner struct {
	// Name is the name of one of Cluster.
	Name, Token string
	Cluster     []Member
}

// Self returns the owner's entry in the initial cluster.
func (o *Owner) Self() Member {
	i := slices.IndexFunc(o.Cluster, func(m Member) bool { return m.Name == o.Name })
	return o.Cluster[i]
}

// Validate reports all errors of the initial cluster and of this member's entry.
func (o *Owner) Validate() []error {
	var bad problems.List
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
	bad.If(err != nil, "the other members would refuse this one: %w", err)
	bad.If(!names[o.Name], "member %q is not in the initial cluster", o.Name)
	return bad
}

// Identity is the member and cluster of a data directory.
type Identity struct {
	Format    int    `json:"format"`
	ClusterID uint64 `json:"cluster_id"`
	MemberID  uint64 `json:"member_id"`
	Name      string `json:"name"`
	Token     string `json:"token"`
	// Instance is random and identifies the directory. The cluster registers it, to detect a member
	// that comes back without its directory.
	Instance string `json:"instance"`
	// Started is set once the log has content. If the log is empty then, it was lost, with votes and promises.
	Started bool `json:"started"`
	// Admitted is set once enough other members have accepted this one (package admission), or if there are no others.
	Admitted bool `json:"admitted,omitempty"`
	// Alone is set if the member started as a cluster of one. Its cluster ID is random.
	Alone bool `json:"alone,omitempty"`
	// Joined is set if the member joined an existing cluster.
	Joined bool `json:"joined,omitempty"`
	// Lost is the proof that this member has lost acknowledged entries. It must not start again.
	// Former versions ignore the field.
	Lost string `json:"lost,omitempty"`
	// Members is the cluster at the time when the directory was made.
	Members []store.Member `json:"members"`
}

const identityFormat = 1

// FoundingIdentity returns the identity of a member that starts a new cluster with the others.
func (o *Owner) FoundingIdentity() Identity {
	id := Identity{ClusterID: clusterID(o.Cluster, o.Token), MemberID: MemberID(o.Self().PeerURLs, o.Token)}
	for _, m := range o.Cluster {
		id.Members = append(id.Members, store.Member{ID: MemberID(m.PeerURLs, o.Token), Name: m.Name, PeerURLs: m.PeerURLs})
	}
	slices.SortFunc(id.Members, func(a, b store.Member) int { return cmp.Compare(a.ID, b.ID) })
	return id
}

// Begin fills in the fields of a new directory.
func (id *Identity) Begin(o *Owner, instance string) {
	id.Format, id.Name, id.Token, id.Instance = identityFormat, o.Name, o.Token, instance
}

// SetAlone makes id the identity of a cluster of one, with a cluster ID that depends on the
// instance. If the member has lost its directory, its former cluster refuses it as a member of
// another one.
func (id *Identity) SetAlone() {
	id.Alone, id.Admitted = true, true
	id.ClusterID = HashID("alone", fmt.Sprintf("%x", id.ClusterID), id.Instance)
}

// InitialMembers returns the first members for the initial state, which must be equal on all members. It
// leaves out the names and sorts the URLs, because the configurations of members may differ in
// them. Each member registers its name later.
func (id *Identity) InitialMembers() []store.Member {
	members := make([]store.Member, 0, len(id.Members))
	for _, m := range id.Members {
		members = append(members, store.Member{ID: m.ID, PeerURLs: slices.Sorted(slices.Values(m.PeerURLs))})
	}
	return members
}

// Waits reports whether the member waits to be admitted. It has not taken part in the cluster yet.
func (id *Identity) Waits() bool { return !id.Admitted && len(id.Members) > 1 }

// Read returns the identity of the directory. The error is fs.ErrNotExist if it has none.
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
		return id, fmt.Errorf("%s has format %d, this version reads %d: use the version that wrote the file", path, id.Format, identityFormat)
	}
	return id, nil
}

// Write replaces the identity durably.
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

// Check refuses the identity of another member or cluster, and of a member that has lost its data.
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
	// Members are added and removed, so one common member is enough.
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

// CheckLog refuses a directory without a log if the member has run before.
func (d Dir) CheckLog(id *Identity) error {
	if _, err := os.Stat(d.Log()); id.Started && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the log %s is missing, but this member has run before", ErrLost, d.Log())
	}
	return nil
}

// IsFresh reports whether the log is empty. It refuses an empty log if the member has run before, because votes and
// promises are lost then. applied is the applied index of the state.
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

// MemberID derives a member's ID from its peer URLs and the token.
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

// HashID hashes parts to an ID. It avoids the IDs that raft reserves.
func HashID(parts ...string) uint64 {
	for salt := 0; ; salt++ {
		sum := sha256.Sum256(fmt.Append(nil, salt, strings.Join(parts, "\x00")))
		if id := binary.BigEndian.Uint64(sum[:]); id != raft.None && !raft.IsLocalMsgTarget(id) {
			return id
		}
	}
}
