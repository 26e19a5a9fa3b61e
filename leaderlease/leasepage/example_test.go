package leasepage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/clock"
	"github.com/leaderlease/go/leaderlease/leasepage"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// The traces that leasetrace.Record wrote on each member become one HTML file.
func ExampleDraw() {
	traces, err := leasetrace.Read(strings.NewReader(`{"trace":1,"id":"1","at":5,"duration":250000000}`))
	if err != nil {
		log.Fatal(err)
	}
	picture := leasepage.Draw(traces, map[uint64]string{1: "n1"})
	var page strings.Builder // or a file
	if err := leasepage.Write(&page, picture); err != nil {
		log.Fatal(err)
	}
	fmt.Println(picture.Lanes[0].Name, strings.HasPrefix(page.String(), "<!doctype html>"))
	// Output: n1 true
}

// A member serves the page at /lease. It sends its feed over HTTP too, as JSON strings; any
// transport that keeps messages apart and in order will do.
func ExampleLive() {
	addresses := map[uint64]string{1: "10.0.0.1:8080", 2: "10.0.0.2:8080", 3: "10.0.0.3:8080"}
	trace, lease := newLease()
	live := leasepage.NewLive(leasepage.Config{
		ID: 1, Trace: trace, Now: clock.System().Now,
		Members: func() map[uint64]string { return map[uint64]string{1: "n1", 2: "n2", 3: "n3"} },
		Listen: func(ctx context.Context, member uint64, receive func([]byte) error) error {
			return listen(ctx, "http://"+addresses[member]+"/lease/feed", receive)
		},
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /lease", leasepage.ServePage)
	mux.HandleFunc("GET /lease/events", live.ServeEvents)
	mux.HandleFunc("GET /lease/feed", func(w http.ResponseWriter, r *http.Request) {
		out, flush := json.NewEncoder(w), http.NewResponseController(w).Flush
		err := live.Feed(r.Context(), func(message []byte) error { return errors.Join(out.Encode(message), flush()) })
		if errors.Is(err, leasepage.ErrTooManyFeeds) {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	})

	server := httptest.NewServer(mux)
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	err := listen(ctx, server.URL+"/lease/feed", func(message []byte) error {
		fmt.Println("received the feed:", len(message) > 0)
		cancel()
		return ctx.Err()
	})
	fmt.Println(err)
	lease.Close()
	// Output:
	// received the feed: true
	// context canceled
}

// listen receives a feed over HTTP.
func listen(ctx context.Context, url string, receive func([]byte) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	for in := json.NewDecoder(response.Body); ; {
		var message []byte
		if err := in.Decode(&message); err != nil {
			return err
		}
		if err := receive(message); err != nil {
			return err
		}
	}
}

// newLease returns a Lease of a member of three, and its trace.
func newLease() (*leasetrace.Trace, *leaderlease.Lease) {
	trace := leasetrace.New(leasetrace.Room)
	lease, err := leaderlease.New(leaderlease.Config{
		Raft: &raft.Config{
			ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: raft.NewMemoryStorage(), MaxInflightMsgs: 64,
			PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
		},
		TickInterval: 100 * time.Millisecond, Tracer: trace,
	})
	if err != nil {
		log.Fatal(err)
	}
	return trace, lease
}
