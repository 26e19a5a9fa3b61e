package membership

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/memlink"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// joinable is a network of members that answer with member lists. "hangs:2380" takes connections and never answers.
type joinable struct {
	t   *testing.T
	net *memlink.Network
}

// serve answers at host with a list of these members.
func (j *joinable) serve(host string, clusterID uint64, members ...store.Member) {
	j.t.Helper()
	data, err := json.Marshal(members)
	if err != nil {
		j.t.Fatal(err)
	}
	listener, err := j.net.Listen(host + ":2380")
	if err != nil {
		j.t.Fatal(err)
	}
	served, err := transport.Start(transport.Config{
		Hello: transport.Hello{ClusterID: clusterID, From: 1, Name: host}, Listener: listener, Handler: struct{ transport.Handler }{},
		Dial: j.net.Dialer(host),
		MemberList: func() (transport.MemberList, error) {
			return transport.MemberList{ClusterID: clusterID, From: 1, Members: data}, nil
		},
	})
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { _ = served.Close() })
}

// joiner is the member "new" in a cluster with these others.
func (j *joinable) joiner(others ...string) *Joiner {
	cluster := []memberdir.Member{{Name: "new", PeerURLs: peerURLs("new")}}
	for _, urls := range others {
		m := memberdir.Member{Name: urls}
		for host := range strings.SplitSeq(urls, "+") {
			m.PeerURLs = append(m.PeerURLs, "http://"+host+":2380")
		}
		cluster = append(cluster, m)
	}
	dial := j.net.Dialer("new")
	return &Joiner{
		Owner: &memberdir.Owner{Name: "new", Cluster: cluster}, JoinTimeout: 5 * time.Second, CheckTimeout: time.Second,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if strings.HasPrefix(addr, "hangs") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx, addr)
		},
		Advice: func(uint64) string { return "add it anew" },
	}
}

func onNetwork(t *testing.T, f func(t *testing.T, j *joinable)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &joinable{t: t, net: memlink.New()}) })
}

// A joiner takes the first list that has it, and waits neither for an address that hangs nor for one that has
// another list.
func TestJoin(t *testing.T) {
	onNetwork(t, func(t *testing.T, j *joinable) {
		others := []store.Member{{ID: 1, PeerURLs: peerURLs("m1"), Instance: "i1"}, {ID: 2, PeerURLs: peerURLs("m2"), Instance: "i2"}}
		j.serve("m1", 10, append(slices.Clone(others), store.Member{ID: 3, PeerURLs: peerURLs("new")})...)
		j.serve("behind", 10, others...)
		begun := time.Now()
		id, err := j.joiner("hangs", "behind", "hangs+m1").Join()
		if err != nil || id.MemberID != 3 || id.ClusterID != 10 || len(id.Members) != 3 || time.Since(begun) > time.Second {
			t.Errorf("Join() = %+v, %v after %v, want member 3 of three at once", id, err, time.Since(begun))
		}
		j.serve("started", 10, store.Member{ID: 3, PeerURLs: peerURLs("new"), Instance: "i3"})
		for _, test := range []struct {
			name   string
			others []string
			want   error
			words  string
		}{
			{"a member that was not added", []string{"behind"}, ErrMemberNotFound, "behind:2380: "},
			{"a member that has lost its directory", []string{"started"}, memberdir.ErrLost, "add it anew"},
			{"a member without an answer", []string{"hangs"}, context.DeadlineExceeded, "hangs:2380"},
			{"a cluster of one", nil, nil, "no other member to ask"},
		} {
			id, err := j.joiner(test.others...).Join()
			if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.words) || id.MemberID != 0 {
				t.Errorf("%s: Join() = %+v, %v, want %v with %q", test.name, id, err, test.want, test.words)
			}
		}
	})
}

// A cluster is foreign if all other members say so.
func TestForeignCluster(t *testing.T) {
	onNetwork(t, func(t *testing.T, j *joinable) {
		j.serve("m1", 10)
		j.serve("m2", 10)
		j.serve("own", 7)
		for _, test := range []struct {
			others []string
			want   uint64
			took   time.Duration // at most
		}{
			{[]string{"m1", "hangs+m2"}, 10, 0},
			{[]string{"m1", "own"}, 0, 0},
			{[]string{"m1", "hangs"}, 0, time.Second},
			{[]string{"m1", "nobody"}, 0, time.Second},
			{nil, 0, 0},
		} {
			begun := time.Now()
			if got := j.joiner(test.others...).ForeignCluster(7); got != test.want || time.Since(begun) > test.took {
				t.Errorf("ForeignCluster() with %q = %d after %v, want %d after %v", test.others, got, time.Since(begun), test.want, test.took)
			}
		}
	})
}
