package etcdapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leaderlease/go/kvnode"
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

func TestMembershipErrorsAreEtcds(t *testing.T) {
	tests := []struct{ from, want error }{
		{kvnode.ErrMemberNotFound, rpctypes.ErrMemberNotFound},
		{kvnode.ErrMemberExists, rpctypes.ErrPeerURLExist},
		{kvnode.ErrNotLearner, rpctypes.ErrMemberNotLearner},
		{kvnode.ErrLearnerNotReady, rpctypes.ErrMemberLearnerNotReady},
		{kvnode.ErrTooManyLearners, rpctypes.ErrTooManyLearners},
		{kvnode.ErrNotStarted, rpctypes.ErrMemberNotEnoughStarted},
		{kvnode.ErrUnhealthy, rpctypes.ErrUnhealthy},
	}
	for _, tc := range tests {
		s := startServer(t, Config{})
		s.changes.err = tc.from
		if _, err := s.client(t).MemberPromote(t.Context(), 1); !errors.Is(err, tc.want) {
			t.Errorf("MemberPromote() = %v when the node says %v, want %v", err, tc.from, tc.want)
		}
	}
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
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "4000 peer URLs, and 32 are allowed") {
		t.Errorf("MemberAdd() of %d URLs = %v, want InvalidArgument that names both numbers", len(many), err)
	}
}
