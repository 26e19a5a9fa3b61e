package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// authServer is the Auth service of a cluster in which authentication is always
// off.
type authServer struct {
	*API
	pb.UnsafeAuthServer
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

// noRBAC answers everything that would have users and roles: none may seem to be
// there.
func noRBAC[T any]() (*T, error) {
	return nil, status.Error(codes.Unimplemented,
		"kvnode: there are no users and roles; restrict access with TLS client certificates and the network")
}

// AuthEnable is not supported.
func (*authServer) AuthEnable(context.Context, *pb.AuthEnableRequest) (*pb.AuthEnableResponse, error) {
	return noRBAC[pb.AuthEnableResponse]()
}

// AuthDisable has nothing to do, as in an etcd whose authentication is off.
func (s *authServer) AuthDisable(context.Context, *pb.AuthDisableRequest) (*pb.AuthDisableResponse, error) {
	return &pb.AuthDisableResponse{Header: s.header()}, nil
}

// UserAdd is not supported.
func (*authServer) UserAdd(context.Context, *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	return noRBAC[pb.AuthUserAddResponse]()
}

// UserGet is not supported.
func (*authServer) UserGet(context.Context, *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	return noRBAC[pb.AuthUserGetResponse]()
}

// UserList lists no users.
func (s *authServer) UserList(context.Context, *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	return &pb.AuthUserListResponse{Header: s.header()}, nil
}

// UserDelete is not supported.
func (*authServer) UserDelete(context.Context, *pb.AuthUserDeleteRequest) (*pb.AuthUserDeleteResponse, error) {
	return noRBAC[pb.AuthUserDeleteResponse]()
}

// UserChangePassword is not supported.
func (*authServer) UserChangePassword(context.Context, *pb.AuthUserChangePasswordRequest) (*pb.AuthUserChangePasswordResponse, error) {
	return noRBAC[pb.AuthUserChangePasswordResponse]()
}

// UserGrantRole is not supported.
func (*authServer) UserGrantRole(context.Context, *pb.AuthUserGrantRoleRequest) (*pb.AuthUserGrantRoleResponse, error) {
	return noRBAC[pb.AuthUserGrantRoleResponse]()
}

// UserRevokeRole is not supported.
func (*authServer) UserRevokeRole(context.Context, *pb.AuthUserRevokeRoleRequest) (*pb.AuthUserRevokeRoleResponse, error) {
	return noRBAC[pb.AuthUserRevokeRoleResponse]()
}

// RoleAdd is not supported.
func (*authServer) RoleAdd(context.Context, *pb.AuthRoleAddRequest) (*pb.AuthRoleAddResponse, error) {
	return noRBAC[pb.AuthRoleAddResponse]()
}

// RoleGet is not supported.
func (*authServer) RoleGet(context.Context, *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	return noRBAC[pb.AuthRoleGetResponse]()
}

// RoleList lists no roles.
func (s *authServer) RoleList(context.Context, *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	return &pb.AuthRoleListResponse{Header: s.header()}, nil
}

// RoleDelete is not supported.
func (*authServer) RoleDelete(context.Context, *pb.AuthRoleDeleteRequest) (*pb.AuthRoleDeleteResponse, error) {
	return noRBAC[pb.AuthRoleDeleteResponse]()
}

// RoleGrantPermission is not supported.
func (*authServer) RoleGrantPermission(context.Context, *pb.AuthRoleGrantPermissionRequest) (*pb.AuthRoleGrantPermissionResponse, error) {
	return noRBAC[pb.AuthRoleGrantPermissionResponse]()
}

// RoleRevokePermission is not supported.
func (*authServer) RoleRevokePermission(context.Context, *pb.AuthRoleRevokePermissionRequest) (*pb.AuthRoleRevokePermissionResponse, error) {
	return noRBAC[pb.AuthRoleRevokePermissionResponse]()
}
