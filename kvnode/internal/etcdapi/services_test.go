package etcdapi

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/store"
)

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

// A client that was given a password goes on without, and whoever administers
// users learns that there are none.
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
	// Scripts that make sure of it, or look at what there is, find it done and empty.
	off, err := c.AuthDisable(t.Context())
	if err != nil {
		t.Fatalf("AuthDisable = %v, want nil", err)
	}
	wantHeader(t, "AuthDisable", off.Header, 1)
	users, err := c.UserList(t.Context())
	if err != nil || len(users.Users) != 0 {
		t.Fatalf("UserList = %v, %v, want nobody", users, err)
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
