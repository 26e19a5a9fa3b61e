package etcdapi

import (
	"context"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// authServer implements the Auth service of a cluster without authentication.
type authServer struct {
	*API
	pb.UnimplementedAuthServer
}

// AuthStatus returns that authentication is off. The revision is that of an etcd in which users
// and roles were never changed.
func (s *authServer) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: s.header(), Enabled: false, AuthRevision: 1}, nil
}

// Authenticate returns etcd's error for disabled authentication. Clients with a password then
// continue without it.
func (*authServer) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// authError explains the Unimplemented error of the embedded server for all other methods: kvnode
// has no users and roles, and must not look as if it had.
func authError(method string, err error) error {
	if !strings.HasPrefix(method, "/etcdserverpb.Auth/") || status.Code(err) != codes.Unimplemented {
		return err
	}
	return status.Error(codes.Unimplemented,
		"kvnode: there are no users and roles; restrict access with TLS client certificates and the network")
}

// AuthDisable does nothing, as in an etcd without authentication.
func (s *authServer) AuthDisable(context.Context, *pb.AuthDisableRequest) (*pb.AuthDisableResponse, error) {
	return &pb.AuthDisableResponse{Header: s.header()}, nil
}

// UserList returns an empty list: there are no users.
func (s *authServer) UserList(context.Context, *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	return &pb.AuthUserListResponse{Header: s.header()}, nil
}

// RoleList returns an empty list: there are no roles.
func (s *authServer) RoleList(context.Context, *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	return &pb.AuthRoleListResponse{Header: s.header()}, nil
}
