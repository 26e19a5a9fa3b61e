package client

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// says is a stream that receives one message.
type says struct {
	grpc.ClientStream
	message fastwire.Raw
}

func (s says) RecvMsg(m any) error {
	into, _ := m.(*fastwire.Raw)
	*into = s.message
	return nil
}

// A member that has lost its leader does not get the next stream.
func TestStreamOfMemberWithoutLeader(t *testing.T) {
	for _, tc := range []struct {
		message fastwire.Raw
		want    bool
	}{
		{fastwire.AppendMember(nil, 1, 1), false},
		{fastwire.AppendMember(nil, 1, 0), true},
		{fastwire.AppendAnswer(nil, fastwire.Answer{ID: 1}), false}, // no member state
	} {
		k := newLeaderCache()
		k.recordAnswer("a", 1, 1)
		c := &call{toLeader: true}
		c.endpoint.Store(&endpoint{name: "a", known: k})
		var m fastwire.Raw
		if err := (&stream{says{message: tc.message}, c}).RecvMsg(&m); err != nil {
			t.Fatal(err)
		}
		if got := k.state.Load().failedRecently("a", time.Now()); got != tc.want {
			t.Errorf("after %x the leader is left alone: %v, want %v", tc.message, got, tc.want)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
