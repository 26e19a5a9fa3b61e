package etcdapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store"
)

func TestMembershipGoesToTheNode(t *testing.T) {
	s := startServer(t, Config{})
	c, url := s.client(t), []string{"http://127.0.0.1:9"}
	added, err := c.MemberAddAsLearner(t.Context(), url)
	if err != nil || added.Member.GetID() != 77 || !added.Member.GetIsLearner() || len(added.Members) == 0 {
		t.Fatalf("MemberAddAsLearner() = %v, %v, want member 77", added, err)
	}
	_, promoteErr := c.MemberPromote(t.Context(), 77)
	_, updateErr := c.MemberUpdate(t.Context(), 77, url)
	_, removeErr := c.MemberRemove(t.Context(), 77)
	if err := errors.Join(promoteErr, updateErr, removeErr); err != nil {
		t.Fatal(err)
	}
	want := []string{"add [http://127.0.0.1:9] true", "promote 77", "update 77 [http://127.0.0.1:9]", "remove 77"}
	if !slices.Equal(s.changes.calls, want) {
		t.Errorf("the node was asked %q, want %q", s.changes.calls, want)
	}
}

// Invalid peer URLs get etcd's error, and too many one that names the limit.
func TestPeerURLsAreChecked(t *testing.T) {
	s := startServer(t, Config{})
	for _, urls := range [][]string{{}, {"unix://a:1"}, {"http://a:1/path"}} {
		if _, err := pb.NewClusterClient(s.conn).MemberAdd(t.Context(), &pb.MemberAddRequest{PeerURLs: urls}); !errors.Is(err, rpctypes.ErrGRPCMemberBadURLs) {
			t.Errorf("MemberAdd(%v) = %v, want %v", urls, err, rpctypes.ErrGRPCMemberBadURLs)
		}
	}
	many := make([]string, 4000)
	for i := range many {
		many[i] = fmt.Sprintf("http://a:%d", i+1)
	}
	_, err := pb.NewClusterClient(s.conn).MemberAdd(t.Context(), &pb.MemberAddRequest{PeerURLs: many})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "4000 peer URLs of a member exceed the limit of 32") {
		t.Errorf("MemberAdd() of %d URLs = %v, want InvalidArgument that names both numbers", len(many), err)
	}
}

func TestMembersAreListedByID(t *testing.T) {
	s := startServer(t, Config{})
	s.store.ApplyConf(3, testTerm, nil, &store.MemberChange{Set: &store.Member{ID: 5, PeerURLs: []string{"http://127.0.0.1:5"}, Learner: true}})
	got, err := s.client(t).MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantHeader(t, "MemberList", got.Header, 1)
	if len(got.Members) != 2 || got.Members[0].GetID() != 5 || !got.Members[0].GetIsLearner() || got.Members[1].GetID() != testMember ||
		got.Members[1].GetName() != "a" || got.Members[1].GetPeerURLs()[0] != "http://127.0.0.1:1" || got.Members[1].GetClientURLs()[0] != "http://127.0.0.1:2" {
		t.Errorf("MemberList = %v", got.Members)
	}
	if mode := s.lastMode(t); mode != kvnode.ReadAuto {
		t.Errorf("linearizable MemberList read in mode %v", mode)
	}
	if _, err := s.client(t).MemberList(t.Context(), clientv3.WithSerializable()); err != nil {
		t.Fatal(err)
	}
	if mode := s.lastMode(t); mode != kvnode.ReadSerializable {
		t.Errorf("serializable MemberList read in mode %v", mode)
	}
}

// Clients with a password continue without it, and the administration of users returns
// Unimplemented.
func TestAuthenticationIsOff(t *testing.T) {
	s := startServer(t, Config{})
	c := s.client(t)
	on, err := c.AuthStatus(t.Context())
	if err != nil || on.Enabled || on.AuthRevision != 1 {
		t.Errorf("AuthStatus = %v, %v", on, err)
	}
	if _, err := c.Authenticate(t.Context(), "root", "secret"); !errors.Is(err, rpctypes.ErrAuthNotEnabled) {
		t.Errorf("Authenticate = %v, want %v", err, rpctypes.ErrAuthNotEnabled)
	}
	// Scripts that disable authentication, or list users, succeed.
	off, err := c.AuthDisable(t.Context())
	if err != nil {
		t.Fatalf("AuthDisable = %v, want nil", err)
	}
	wantHeader(t, "AuthDisable", off.Header, 1)
	users, err := c.UserList(t.Context())
	if err != nil || len(users.Users) != 0 {
		t.Fatalf("UserList = %v, %v, want none", users, err)
	}
	wantHeader(t, "UserList", users.Header, 1)
	roles, err := c.RoleList(t.Context())
	if err != nil || len(roles.Roles) != 0 {
		t.Fatalf("RoleList = %v, %v, want none", roles, err)
	}
	wantHeader(t, "RoleList", roles.Header, 1)

	_, err = c.UserGet(t.Context(), "u")
	wantUnimplemented(t, "UserGet", err, "no users and roles")
	_, err = c.UserAdd(t.Context(), "u", "p")
	wantUnimplemented(t, "UserAdd", err, "no users and roles")
	_, err = c.AuthEnable(t.Context())
	wantUnimplemented(t, "AuthEnable", err, "no users and roles")
	_, err = c.RoleGrantPermission(t.Context(), "r", "a", "b", clientv3.PermissionType(clientv3.PermReadWrite))
	wantUnimplemented(t, "RoleGrantPermission", err, "no users and roles")
}

func wantUnimplemented(t *testing.T, what string, err error, text string) {
	t.Helper()
	if status.Code(err) != codes.Unimplemented || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("%s = %v, want Unimplemented with %q", what, err, text)
	}
}
