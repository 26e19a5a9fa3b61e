package server

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/leaderlease/leasepage"
)

// watchLeases opens a member's stream of lease pictures.
func watchLeases(t *testing.T, s *Server) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.HTTPAddrs()[0]+"/lease/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// next returns the next picture.
func next(t *testing.T, lines *bufio.Reader) (p leasepage.Picture) {
	t.Helper()
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ends with %v", err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &p); err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
}

// Every member shows the leases of all: the leader's lease, and the others' promises to it.
func TestLeasePageShowsAllMembers(t *testing.T) {
	all := trio(t)
	lead, others := leader(t, all)
	r := watchLeases(t, others[0])
	lines := bufio.NewReader(r.Body)
	until(t, "a picture has the lease and the promises", func() bool {
		p, held, promised := next(t, lines), 0, 0
		for _, lane := range p.Lanes {
			held += len(lane.Leases)
			if n := len(lane.Leases); n > 0 && lane.Name != lead.cfg.Node.Name {
				t.Fatalf("%s is shown with a lease, and %s leads", lane.Name, lead.cfg.Node.Name)
			}
			if len(lane.Promises) > 0 {
				promised++
			}
		}
		return len(p.Lanes) == 3 && held > 0 && promised == 2
	})
	stop(t, others[0]) // while a page is open
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Errorf("the stream of a member that stops ends with %v, want its end", err)
	}
}

// The pages of other members show a member's stop as a stop, not as a crash, and the reads that
// it served before.
func TestLeasePageShowsStopsAndReads(t *testing.T) {
	all := trio(t)
	_, others := leader(t, all)
	r := watchLeases(t, others[0])
	lines := bufio.NewReader(r.Body)
	name := others[1].cfg.Node.Name
	until(t, "reads of another member are shown", func() bool {
		if _, err := others[1].node.Read(t.Context(), kvnode.ReadLease); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(next(t, lines).Lanes, func(l *leasepage.Lane) bool { return l.Name == name && len(l.Reads) > 0 })
	})
	stop(t, others[1])
	until(t, "it is shown that it has stopped", func() bool {
		return slices.ContainsFunc(next(t, lines).Lanes, func(l *leasepage.Lane) bool {
			return l.Name == name && slices.ContainsFunc(l.Flags, func(f leasepage.Flag) bool { return f.Kind == "end" })
		})
	})
}

// The page's policy permits no other scripts. A request must name the member as its host, and
// pages of other sites cannot read the pictures.
func TestLeasePageIsServedSafely(t *testing.T) {
	s := solo(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.HTTPAddrs()[0]+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if at, policy := response.Request.URL.Path, response.Header.Get("Content-Security-Policy"); at != "/lease" ||
		!strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("GET / leads to %s with the policy %q, want /lease, where nothing runs but the page", at, policy)
	}
	for _, path := range []string{"/lease", "/lease/events"} {
		a := asked{method: http.MethodGet, base: "http://" + s.HTTPAddrs()[0], path: path, host: "evil.example"}
		if code, _ := a.send(t); code != http.StatusMisdirectedRequest {
			t.Errorf("GET %s for evil.example = %d, want 421", path, code)
		}
	}
	for _, a := range []asked{{site: "cross-site"}, {site: "same-site"}, {origin: "http://evil.example"}} {
		a.method, a.base, a.path = http.MethodGet, "http://"+s.HTTPAddrs()[0], "/lease/events"
		if code, _ := a.send(t); code != http.StatusForbidden {
			t.Errorf("GET /lease/events from a page of site %q, origin %q = %d, want 403", a.site, a.origin, code)
		}
	}
}

// The number of open pages is limited, and a closed one makes place.
func TestLeasePageHasFewWatchers(t *testing.T) {
	s := solo(t)
	var open []*http.Response
	for len(open) < 16 {
		r := watchLeases(t, s)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("watcher %d: %s, want 200", len(open)+1, r.Status)
		}
		open = append(open, r)
	}
	if r := watchLeases(t, s); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("watcher 17: %s, want 503", r.Status)
	}
	_ = open[0].Body.Close()
	until(t, "there is a place again", func() bool {
		r := watchLeases(t, s)
		defer func() { _ = r.Body.Close() }()
		return r.StatusCode == http.StatusOK
	})
}

func TestLeasePageCanBeTurnedOff(t *testing.T) {
	s := solo(t, func(c *Config) { c.DisableLeasePage = true })
	for _, path := range []string{"/lease", "/lease/events"} {
		if code, _ := page(t, s, path); code != http.StatusNotFound {
			t.Errorf("GET %s = %d, want 404", path, code)
		}
	}
	if trace, _ := s.node.Trace(); trace != nil {
		t.Error("the lease is traced without a page that shows it")
	}
}
