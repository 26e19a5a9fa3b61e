package memberdir

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"
)

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
