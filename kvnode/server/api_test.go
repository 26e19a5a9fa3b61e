package server

import (
	"testing"

	"google.golang.org/grpc"
)

// Members of one process may be given the same options: what each adds, its
// certificate, is its own.
func TestOptionsOfTheCallerStayItsOwn(t *testing.T) {
	dial := make([]grpc.DialOption, 1)
	dial[0] = grpc.EmptyDialOption{}
	trio(t, newFiles(t).mutual, func(c *Config) { c.API.LeaderDial = dial[:0] })
	if _, ok := dial[0].(grpc.EmptyDialOption); !ok {
		t.Errorf("behind the caller's options stands %T, want what was there", dial[0])
	}
}
