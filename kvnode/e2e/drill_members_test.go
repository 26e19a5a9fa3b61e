package e2e

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func drillReplace(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.destroy("m3")
	m.perform("replace")
	must(t, m.member("m4").Use(func(c *clientv3.Client) error {
		if n, _ := count(t, c, "k"); n != 10 {
			t.Errorf("m4 has %d of 10 keys", n)
		}
		return nil
	}))
}

func drillAdd(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.perform("add")
	members, err := a.MemberList(deadline(t))
	if err != nil || len(members.Members) != 4 || members.Members[3].GetIsLearner() {
		t.Fatalf("MemberList() = %v, %v, want four, and no learner", members, err)
	}
	m.perform("remove")
	if members, err = a.MemberList(deadline(t)); err != nil || len(members.Members) != 3 {
		t.Errorf("MemberList() = %v, %v, want three", members, err)
	}
}

func drillMoved(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.between = "rm -r \"$DATA/m3\"\n" // the new machine is the same one here
	m.perform("moved")
}

// The last entry of m3's store.db is another one than that of its log.
func drillDiffers(t *testing.T, m *machines) {
	m.common("corrupt-check-time: 1s\n")
	m.found()
	a, _ := memberClients(t, m.Cluster)
	ctx := deadline(t)
	id := makeDiffer(ctx, t, a, m.member("m3"))
	awaitCorrupt(ctx, t, a, id)
	m.perform("differs")
	puts(t, a, "after", 1)
}
