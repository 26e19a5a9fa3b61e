package etcdapi

import (
	"context"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// authServer is the Auth service of a cluster in which authentication is always
// off.
type authServer struct {
	*API
	pb.UnimplementedAuthServer
}

// AuthStatus says that authentication is off. The revision is that of an etcd
// in which nothing about users and roles was ever changed.
func (s *authServer) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: s.header(), Enabled: false, AuthRevision: 1}, nil
}

// Authenticate says what etcd says while authentication is off: clients that
// were given a password go on without.
func (*authServer) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// authError says of all methods of the service that are not below, whose error embedding has
// made, that nobody has users and roles: none may seem to be there.
func authError(method string, err error) error {
	if !strings.HasPrefix(method, "/etcdserverpb.Auth/") || status.Code(err) != codes.Unimplemented {
		return err
	}
	return status.Error(codes.Unimplemented,
		"kvnode: there are no users and roles; restrict access with TLS client certificates and the network")
}

// AuthDisable has nothing to do, as in an etcd whose authentication is off.
func (s *authServer) AuthDisable(context.Context, *pb.AuthDisableRequest) (*pb.AuthDisableResponse, error) {
	return &pb.AuthDisableResponse{Header: s.header()}, nil
}

// UserList lists no users.
func (s *authServer) UserList(context.Context, *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	return &pb.AuthUserListResponse{Header: s.header()}, nil
}

// RoleList lists no roles.
func (s *authServer) RoleList(context.Context, *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	return &pb.AuthRoleListResponse{Header: s.header()}, nil
}
