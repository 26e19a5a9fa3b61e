package membership

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/lifecycle"
	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// newAdmission returns the admission of the member 1 of three. events gets "saved" and "opened".
func newAdmission(waits bool, saves *bool, log *bytes.Buffer, life *lifecycle.Lifecycle, events *[]string) *OwnAdmission {
	members := []store.Member{{ID: 1, Name: "m1"}, {ID: 2, Name: "m2"}, {ID: 3, Name: "m3"}}
	return NewOwnAdmission(OwnAdmissionConfig{
		Self: 1, Identity: &memberdir.Identity{Members: members, Admitted: !waits}, Life: life,
		List:         NewList(1, members, nil, &fakeStore{members: registry()}),
		SaveAdmitted: func() bool { *events = append(*events, "saved"); return *saves },
		Opened:       func() { *events = append(*events, "opened") },
		Advice:       "start it with the right token", Log: slog.New(slog.NewTextHandler(log, nil)),
	})
}

// The admission is durable before the member takes part. Until then it names the members that it waits for.
func TestOwnAdmission(t *testing.T) {
	for _, saves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var (
				log    bytes.Buffer
				events []string
			)
			a := newAdmission(true, &saves, &log, lifecycle.New(slog.New(slog.DiscardHandler)), &events)
			if got := a.Awaited(); len(got) != 2 || a.IsOpen() {
				t.Errorf("Awaited() = %q, IsOpen() = %v at the start, want two members and false", got, a.IsOpen())
			}
			a.PeerAccepted(2)
			time.Sleep(admission.Reminder)
			a.Tick(time.Now())
			if got := a.Awaited(); len(got) != 1 || !strings.HasPrefix(got[0], "m3") || strings.Count(log.String(), "waits to be let in") != 2 {
				t.Errorf("Awaited() = %q after one of two has accepted it, want m3 and two lines: %s", got, log.String())
			}
			a.PeerAccepted(3)
			want := []string{"saved", "opened"}
			if !saves {
				want = want[:1]
			}
			if !slices.Equal(events, want) || a.IsOpen() != saves || (len(a.Awaited()) == 0) != saves {
				t.Errorf("events %q, IsOpen() = %v, Awaited() = %q, want %q", events, a.IsOpen(), a.Awaited(), want)
			}
		})
	}
}

// A member that waits stops when all others refuse it as foreign. One that takes part goes on, and logs it once.
func TestForeignPeers(t *testing.T) {
	for _, waits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var (
				log    bytes.Buffer
				events []string
				saves  bool
			)
			life := lifecycle.New(slog.New(slog.DiscardHandler))
			a := newAdmission(waits, &saves, &log, life, &events)
			for range 4 {
				for _, id := range []uint64{2, 3} {
					a.PeerForeign(&transport.RefusedError{Peer: id, Reason: transport.ReasonCluster, Text: "this is cluster 9"}, time.Now())
				}
				time.Sleep(admission.RefusalPatience / 2)
			}
			err := life.Err()
			if !waits && err != nil || waits && (!errors.Is(err, ErrForeignCluster) || !strings.Contains(err.Error(), "right token") || !strings.Contains(err.Error(), "this is cluster 9")) {
				t.Errorf("Err() = %v of a member that waits: %v", err, waits)
			}
			if got := strings.Count(log.String(), "a peer is of another cluster"); got != 2 {
				t.Errorf("%d lines, want one for each peer: %s", got, log.String())
			}
		})
	}
}

// The proof of a loss is kept if a registered member has given it, and this member sees the loss itself.
func TestDataLoss(t *testing.T) {
	for _, test := range []struct {
		name              string
		peer              uint64
		refused           transport.RefusedError
		present, lastTerm uint64
		kept              bool
	}{
		{"more entries than it has", 2, transport.RefusedError{Term: 5, Index: 21}, 20, 5, true},
		{"a later term", 2, transport.RefusedError{Term: 6, Index: 20}, 20, 5, true},
		{"what it has", 2, transport.RefusedError{Term: 5, Index: 20}, 20, 5, false},
		{"what it has acknowledged in this process", 2, transport.RefusedError{Term: 5, Index: 21}, 21, 5, false},
		{"another instance", 2, transport.RefusedError{}, 20, 5, false},
		{"a peer that is not registered", 9, transport.RefusedError{Term: 5, Index: 21}, 20, 5, false},
	} {
		life, proof := lifecycle.New(slog.New(slog.DiscardHandler)), ""
		d := NewDataLoss(DataLossConfig{
			List: NewList(1, nil, nil, three()), Life: life, Advice: "add it anew", AtStart: transport.DiskState{Term: 5, Last: 20},
			SaveLost: func(p string) bool { proof = p; return true },
			Present:  func() (term, last uint64) { return test.lastTerm, test.present }, Log: slog.New(slog.DiscardHandler),
		})
		refused := test.refused
		refused.Peer, refused.Text = test.peer, strings.Repeat("x", 10*maxProof)
		d.RefusedForLoss(&refused)
		if err := life.Err(); !errors.Is(err, memberdir.ErrLost) || !strings.HasSuffix(err.Error(), "; add it anew") {
			t.Errorf("%s: Err() = %.100v, want ErrLost and what to do", test.name, err)
		}
		if kept := proof != ""; kept != test.kept || len(proof) > 2*maxProof {
			t.Errorf("%s: the proof has %d bytes, want one: %v", test.name, len(proof), test.kept)
		}
	}
}
