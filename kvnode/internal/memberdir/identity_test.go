package memberdir

import (
	"testing"

	"go.etcd.io/raft/v3"
)

func TestIDs(t *testing.T) {
	a, b := []string{"http://a:1", "http://b:1"}, []string{"http://b:1", "http://a:1"}
	if MemberID(a, "t") != MemberID(b, "t") {
		t.Error("MemberID depends on the order of URLs")
	}
	if MemberID(a, "t") == MemberID(a, "u") {
		t.Error("MemberID does not depend on the token")
	}
	if id := MemberID(a, "t"); id == raft.None || raft.IsLocalMsgTarget(id) {
		t.Errorf("MemberID = %x, which raft keeps for itself", id)
	}
	x, y := Member{PeerURLs: []string{"http://x:1"}}, Member{PeerURLs: []string{"http://y:1"}}
	if clusterID([]Member{x, y}, "t") != clusterID([]Member{y, x}, "t") {
		t.Error("clusterID depends on the order of members")
	}
}
