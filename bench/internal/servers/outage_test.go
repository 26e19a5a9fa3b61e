package servers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func instant(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }

// The leader may have answered, before it died, a request that was sent before the death.
func TestAnOutageIsTheLongestTimeWithoutAnAnswerAfterTheDeath(t *testing.T) {
	const ms = time.Millisecond
	at, end := instant(100), instant(500)
	for _, c := range []struct {
		name string
		all  []answer
		want time.Duration
	}{
		{"nothing", nil, 400 * ms},
		{"one", []answer{{asked: instant(101), came: instant(300)}}, 200 * ms},
		{"one that was asked for at the death", []answer{{asked: instant(100), came: instant(300)}}, 400 * ms},
		{"one that came at the end", []answer{{asked: instant(101), came: instant(500)}}, 400 * ms},
		{"first the gap", []answer{{asked: instant(101), came: instant(350)}, {asked: instant(102), came: instant(400)}}, 250 * ms},
		{"first an answer, then the gap", []answer{{asked: instant(101), came: instant(102)}, {asked: instant(103), came: instant(450)}}, 348 * ms},
		{"out of order", []answer{{asked: instant(101), came: instant(450)}, {asked: instant(200), came: instant(201)}, {asked: instant(99), came: instant(210)}}, 249 * ms},
	} {
		if got := gap(c.all, at, end); got != c.want {
			t.Errorf("%s: away for %v, want %v", c.name, got, c.want)
		}
	}
}

// After its cable is pulled, a leader may answer once more, before an outage of a second.
func TestReadsAndWritesMustBothBeBack(t *testing.T) {
	p := &probe{}
	for ms := 101; ms <= 2000; ms += 10 {
		a := answer{asked: instant(ms), came: instant(ms + 1)}
		if ms < 110 || ms > 1100 {
			p.mu.answers[0] = append(p.mu.answers[0], a)
		}
		if ms < 110 || ms > 1200 {
			p.mu.answers[1] = append(p.mu.answers[1], a)
		}
	}
	for ms, want := range map[int]bool{600: false, 1101: false, 1340: false, 1449: false, 1460: true, 2000: true} {
		if got := p.isSteady(instant(ms)); got != want {
			t.Errorf("isSteady(%d ms) = %v, want %v", ms, got, want)
		}
	}
	if got := p.outages(instant(100), instant(1500)); got != [2]time.Duration{1000 * time.Millisecond, 1100 * time.Millisecond} {
		t.Errorf("outages() = %v, want a second of reads and 1.1 of writes", got)
	}
}

func TestErrorsAreCountedByMember(t *testing.T) {
	p := &probe{}
	changed := rpctypes.Error(rpctypes.ErrGRPCLeaderChanged)
	p.mu.answers[1] = []answer{
		{asked: instant(100), came: instant(101)},
		{came: instant(99), member: 0, err: changed},
		{came: instant(100), member: 1, err: changed},
		{came: instant(101), member: 2, err: changed},
		{came: instant(102), member: 0, err: status.Error(codes.Unavailable, "127.0.0.1:7 is gone")},
		{came: instant(103), member: 1, err: context.DeadlineExceeded},
	}
	want := map[string]int64{
		"clients of the others: etcdserver: leader changed": 2, "its own clients: Unavailable": 1, "clients of the others: DeadlineExceeded": 1,
	}
	if got := p.errorsSince(1, 0, instant(100)); !maps.Equal(got, want) {
		t.Errorf("errorsSince() = %v, want %v", got, want)
	}
}

func TestDeathsHaveNames(t *testing.T) {
	all, err := Named([]string{"two", "kill"})
	if err != nil || len(all) != 2 || all[0].Short != "kill" {
		t.Errorf("Named() = %v, %v, want kill and two", all, err)
	}
	if _, err := Named([]string{"age"}); err == nil || !strings.Contains(err.Error(), `"age" must be one of [kill panic`) {
		t.Errorf("Named(age) = %v, want an error with all names", err)
	}
	if i := slices.IndexFunc(All, func(d Death) bool { return d.Needs != "" || d.Members > 0 }); slices.ContainsFunc(All[i:], func(d Death) bool { return d.Needs == "" && d.Members == 0 }) {
		t.Error("deaths that need nothing do not come first, and would have clusters of their own")
	}
}
