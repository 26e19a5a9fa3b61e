package transport

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/memlink"
)

// Two processes that take turns as one member are named, once in a while; one that
// replaces another, or connects again and again, is not.
func TestTwoProcessesOfOneMemberAreNamed(t *testing.T) {
	for _, tc := range []struct {
		name      string
		processes []string
		lines     int
	}{
		{"one that connects again and again", []string{"a", "a", "a", "a", "a", "a", "a", "a"}, 0},
		{"one after another", []string{"a", "b", "c", "d", "e", "f", "g"}, 0},
		{"a late word of one that has ended", []string{"a", "b", "a", "b", "b", "b"}, 0},
		{"two that take turns", []string{"a", "b", "a", "b", "a", "b", "a", "b", "a", "b"}, 1},
		{"former versions, which do not say", []string{"", "", "", ""}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := memlink.New()
				var log bytes.Buffer
				begin(t, net, &fakeNode{id: 2}, func(cfg *Config, _ *limits) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				for _, process := range tc.processes {
					c := dialRaw(t, net, 1, 2)
					t.Cleanup(func() { _ = c.Close() })
					h := helloTo(1, 2)
					h.Log.Process, h.Name, h.PeerURLs = process, "n1", fmt.Sprintf("http://%s:2380", process)
					if p := speak(t, c, control, h); p.kind != answerOK {
						t.Fatalf("process %s was answered with kind %d, want %d", process, p.kind, answerOK)
					}
					time.Sleep(time.Second)
				}
				synctest.Wait()
				if got := strings.Count(log.String(), "connects from two addresses"); got != tc.lines {
					t.Errorf("%d lines, want %d: %s", got, tc.lines, log.String())
				}
			})
		})
	}
}

// What may repeat for ever is not logged each time.
func TestALinkThatFlapsDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		var log bytes.Buffer
		begin(t, net, &fakeNode{id: 2}, func(cfg *Config, _ *limits) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		for range 500 {
			c := dialRaw(t, net, 1, 2)
			if p := speak(t, c, control, helloTo(1, 2)); p.kind != answerOK {
				t.Fatalf("answered with kind %d, want %d", p.kind, answerOK)
			}
			_ = c.Close()
			time.Sleep(20 * time.Millisecond)
		}
		synctest.Wait()
		if got := strings.Count(log.String(), "\n"); got > 30 {
			t.Errorf("500 connections in 10s made %d lines, want at most 30", got)
		}
	})
}
