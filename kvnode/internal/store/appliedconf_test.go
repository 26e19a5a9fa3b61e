package store_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// A configuration change that is applied already changes nothing, nor does the index go
// back.
func TestAnAppliedChangeIsNotAppliedAgain(t *testing.T) {
	s := openStore(t, newBackend())
	defer shut(t, s)
	s.ApplyConf(5, 2, &raftpb.ConfState{Voters: []uint64{1}}, nil)
	for _, index := range []uint64{5, 4} {
		s.ApplyConf(index, 9, &raftpb.ConfState{Voters: []uint64{7}}, &store.MemberChange{Format: store.FormatNewest})
		if s.Format() != store.FormatFirst || s.Applied() != 5 {
			t.Errorf("after entry %d again: format %d, applied %d, want %d and 5", index, s.Format(), s.Applied(), store.FormatFirst)
		}
	}
}
