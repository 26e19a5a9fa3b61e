package e2e

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/leaderlease/go/internal/testcluster"
)

// lay lays out a process that joins the cluster, and names its addresses:
//
//	new m4
func (s *ctlScript) lay(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	known := len(s.c.Members())
	m, err := s.c.Join(name(t, d))
	if err != nil {
		t.Fatal(err)
	}
	if no := slices.Index(s.c.Members(), m) + 1; no > known {
		s.names.addMember(no, m)
	}
	return "ok\n"
}

// start starts a member and waits until it serves, unless it is to be refused:
//
//	start m4
func (s *ctlScript) start(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	m := s.member(t, name(t, d))
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	if err := m.WaitReady(ctx); err != nil {
		t.Log(err)
		return "does not serve\n"
	}
	return "ok\n"
}

// kill kills a member:
//
//	kill m1
func (s *ctlScript) kill(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	kill(t, s.member(t, name(t, d)))
	return "ok\n"
}

// wipe removes what a member has stored, after killing it:
//
//	wipe m1
func (s *ctlScript) wipe(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	m := s.member(t, name(t, d))
	kill(t, m)
	wipe(t, m)
	return "ok\n"
}

// exits waits until a member has ended by itself, and forgets it:
//
//	exits m4
func (s *ctlScript) exits(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	m := s.member(t, name(t, d))
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	code, err := m.WaitExit(ctx)
	if err != nil {
		t.Log(err)
		return "still runs\n"
	}
	t.Logf("%s ended with exit code %d: %s", m.Name, code, lastLine(m.Log()))
	s.c.Forget(m.Name)
	return "ok\n"
}

// endpointsOf returns the client addresses of members, for etcdctl.
func endpointsOf(members ...*testcluster.Member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.Endpoint)
	}
	return strings.Join(all, ",")
}

// number reads a decimal number.
func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
