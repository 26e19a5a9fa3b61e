package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// ask sends a request to h and returns the answer's code and body.
func ask(t *testing.T, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	w := askHeader(t, h, method, path, body, nil)
	return w.Code, w.Body.String()
}

func askHeader(t *testing.T, h http.Handler, method, path, body string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	maps.Copy(r.Header, header)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestVersionIsWhatEtcdToolsParse(t *testing.T) {
	h := New(newFakeNode(t), Config{NodeVersion: "0.1.0"}).Handler()
	code, body := ask(t, h, http.MethodGet, "/version", "")
	const want = `{"etcdserver":"3.7.0","etcdcluster":"3.7.0","storage":"3.7.0","kvnode":"0.1.0"}`
	if code != http.StatusOK || strings.TrimSpace(body) != want {
		t.Errorf("GET /version = %d %s, want %s", code, body, want)
	}
	if code, _ := ask(t, h, http.MethodPost, "/version", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("POST /version = %d", code)
	}
}

// As in etcd, a member is healthy if it can read and has no alarm.
func TestHealthIsThatOfEtcd(t *testing.T) {
	unreadable := func(n *fakeNode) {
		n.onRead = func(_ context.Context, m kvnode.ReadMode) error {
			if m != kvnode.ReadSerializable {
				return kvnode.ErrTimeout
			}
			return nil
		}
	}
	for _, c := range []struct {
		name, query string
		harm        func(*fakeNode)
		want        string
	}{
		{"a sound member", "", func(*fakeNode) {}, `{"health":"true","reason":""}`},
		{"an alarm", "", noSpace, `{"health":"false","reason":"ALARM NOSPACE"}`},
		{"an alarm that is excluded", "?exclude=NOSPACE", noSpace, `{"health":"true","reason":""}`},
		{"another alarm is excluded", "?exclude=CORRUPT", noSpace, `{"health":"false","reason":"ALARM NOSPACE"}`},
		{"no leader", "", func(n *fakeNode) { n.setLeader(0) }, `{"health":"false","reason":"RAFT NO LEADER"}`},
		{"no leader, local", "?serializable=true", func(n *fakeNode) { n.setLeader(0) }, `{"health":"true","reason":""}`},
		{"reads fail", "", unreadable, `{"health":"false","reason":"RANGE ERROR:etcdserver: request timed out"}`},
		{"reads fail, local", "?serializable=true", unreadable, `{"health":"true","reason":""}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newFakeNode(t)
			c.harm(n)
			code, body := ask(t, New(n, Config{}).Handler(), http.MethodGet, "/health"+c.query, "")
			if strings.TrimSpace(body) != c.want || (code == http.StatusOK) != strings.Contains(c.want, `"true"`) {
				t.Errorf("GET /health%s = %d %s, want %s", c.query, code, body, c.want)
			}
		})
	}
}

func noSpace(n *fakeNode) {
	n.apply(&store.Command{Request: &pb.InternalRaftRequest{
		Alarm: &pb.AlarmRequest{MemberID: testMember, Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE},
	}})
}

// /readyz fails with the cluster, /livez only with the member. Each check has its own path and
// can be excluded.
func TestProbesRunTheirChecks(t *testing.T) {
	n := newFakeNode(t)
	h := New(n, Config{}).Handler()
	const verbose = "[+]data_corruption ok\n[+]restart_hold ok\n[+]serializable_read ok\n[+]linearizable_read ok\n[+]non_learner ok\n[+]disk_space ok\n[+]lease ok: valid for another 1s\nok\n"
	if code, body := ask(t, h, http.MethodGet, "/readyz?verbose", ""); code != http.StatusOK || body != verbose {
		t.Errorf("GET /readyz?verbose = %d %q, want %q", code, body, verbose)
	}
	if code, body := ask(t, h, http.MethodGet, "/readyz", ""); code != http.StatusOK || body != "ok\n" {
		t.Errorf("GET /readyz = %d %q", code, body)
	}
	n.onRead = func(_ context.Context, m kvnode.ReadMode) error {
		if m == kvnode.ReadSerializable {
			return nil
		}
		return errors.New("no quorum")
	}
	for _, c := range []struct {
		path string
		ok   bool
	}{
		{"/livez", true},
		{"/livez/serializable_read", true},
		{"/readyz", false},
		{"/readyz?exclude=linearizable_read", true},
		{"/readyz/linearizable_read", false},
		{"/readyz/lease", true},
		{"/readyz/data_corruption", true},
	} {
		code, body := ask(t, h, http.MethodGet, c.path, "")
		if (code == http.StatusOK) != c.ok {
			t.Errorf("GET %s without a quorum = %d %q, want success %v", c.path, code, body, c.ok)
		}
		if !c.ok && !strings.Contains(body, "[-]linearizable_read failed: no quorum\n") {
			t.Errorf("GET %s does not say what failed: %q", c.path, body)
		}
	}
	if code, _ := ask(t, h, http.MethodGet, "/readyz/nothing", ""); code != http.StatusNotFound {
		t.Errorf("GET /readyz/nothing = %d, want 404", code)
	}
}

// The JSON is that of etcd: base64, protobuf names, 64-bit numbers as strings, and no zero
// values.
func TestGatewaySpeaksTheJSONOfEtcd(t *testing.T) {
	s := startServer(t, Config{})
	h, err := s.api.Gateway(t.Context(), s.conn)
	if err != nil {
		t.Fatal(err)
	}
	const header = `"header":{"cluster_id":"193","member_id":"161","revision":"2","raft_term":"7"}`
	for _, c := range []struct {
		path, body string
		code       int
		want       string
	}{
		{"/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`, 200, `{` + header + `}`},
		{"/v3/kv/range", `{"key":"Zm9v"}`, 200, `{` + header + `,"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],"count":"1"}`},
		{"/v3/kv/range", `{"key":"Zm9v","keys_only":true,"unknown":1}`, 200, `{` + header + `,"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1"}],"count":"1"}`},
		{"/v3/kv/range", `{}`, 400, `{"code":3,"message":"etcdserver: key is not provided"}`},
		{"/v3/kv/range", `{"key":"Zm9v","revision":"99"}`, 400, `{"code":11,"message":"etcdserver: mvcc: required revision is a future revision"}`},
		{"/v3/auth/status", `{}`, 200, `{` + header + `,"authRevision":"1"}`},
	} {
		code, body := ask(t, h, http.MethodPost, c.path, c.body)
		// protojson puts spaces at random.
		if got := strings.ReplaceAll(body, `, "`, `,"`); code != c.code || compact(got) != compact(c.want) {
			t.Errorf("POST %s %s = %d %s, want %d %s", c.path, c.body, code, body, c.code, c.want)
		}
	}
}

func compact(json string) string { return strings.ReplaceAll(json, " ", "") }

// HTTP requests may select a read mode, and get the trailers as headers.
func TestGatewayPassesReadModeAndTrailers(t *testing.T) {
	s := startServer(t, Config{})
	h, err := s.api.Gateway(t.Context(), s.conn)
	if err != nil {
		t.Fatal(err)
	}
	w := askHeader(t, h, http.MethodPost, "/v3/kv/range", `{"key":"Zm9v"}`, nil)
	if got := w.Header(); got.Get(fastwire.TrailerReadPath) != "lease" || got.Get(fastwire.TrailerRemaining) != "850" {
		t.Errorf("headers = %v, want lease and 850", got)
	}
	s.mu.modes = nil
	w = askHeader(t, h, http.MethodPost, "/v3/kv/range", `{"key":"Zm9v"}`, http.Header{"X-Lease-Read": {"read-index"}})
	if got := s.lastMode(t); got != kvnode.ReadIndex || w.Header().Get(fastwire.TrailerReadPath) != "read_index" {
		t.Errorf("mode = %v, headers %v; want read-index", got, w.Header())
	}
}

// counted counts what is read of a body.
type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// A body without end is not read to its end.
func TestGatewayBoundsRequests(t *testing.T) {
	s := startServer(t, Config{MaxRequestBytes: 1024})
	h, err := s.api.Gateway(t.Context(), s.conn)
	if err != nil {
		t.Fatal(err)
	}
	body := &counted{Reader: strings.NewReader(`{"key":"` + strings.Repeat("A", 8<<20) + `"}`)}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v3/kv/put", body))
	if limit := s.api.maxMessageBytes() * 3 / 2; w.Code < 400 || body.n > limit {
		t.Errorf("POST of too much = %d after %d bytes, want at most %d read", w.Code, body.n, limit)
	}
}

// A body that is too large is rejected with gRPC's code. The error has the limit, and the size if
// the client has announced it.
func TestGatewayNamesItsLimit(t *testing.T) {
	s := startServer(t, Config{MaxRequestBytes: 1024})
	h, err := s.api.Gateway(t.Context(), s.conn)
	if err != nil {
		t.Fatal(err)
	}
	limit := s.api.maxMessageBytes() / 3 * 4
	// Unknown fields count towards the size.
	body := func(size int) string {
		const around = len(`{"key":"Zm9v","x":""}`)
		return `{"key":"Zm9v","x":"` + strings.Repeat("A", size-around) + `"}`
	}
	for _, c := range []struct {
		name, body string
		chunked    bool
		code       int
		want       string
	}{
		{"as large as may be", body(limit), false, 200, `"header"`},
		{"one byte more", body(limit + 1), false, 429, fmt.Sprintf(`{"code":8,"message":"kvnode: request body of %d bytes is larger than the limit of %d bytes"}`, limit+1, limit)},
		{"more than that, in chunks", body(limit + 1), true, 429, fmt.Sprintf(`{"code":8,"message":"kvnode: request body is larger than the limit of %d bytes"}`, limit)},
		{"what is no JSON", "key", false, 400, `{"code":3,`},
	} {
		var from io.Reader = strings.NewReader(c.body)
		if c.chunked {
			from = &counted{Reader: from}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v3/kv/range", from))
		got := strings.ReplaceAll(w.Body.String(), `, "`, `,"`)
		if w.Code != c.code || !strings.Contains(compact(got), compact(c.want)) {
			t.Errorf("POST of %s = %d %s, want %d %s", c.name, w.Code, got, c.code, c.want)
		}
	}
}

// Replies have no headers about gRPC's encoding.
func TestGatewayHasNoHeadersOfGRPC(t *testing.T) {
	s := startServer(t, Config{})
	h, err := s.api.Gateway(t.Context(), s.conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{`{"key":"Zm9v"}`, `{}`} { // served and refused
		w := askHeader(t, h, http.MethodPost, "/v3/kv/range", body, nil)
		for name := range w.Header() {
			if strings.HasPrefix(name, "Grpc-Metadata-") {
				t.Errorf("reply %d to %s has the header %s: %q", w.Code, body, name, w.Header()[name])
			}
		}
	}
}

// A member in its restart hold is not ready, since it does not vote. A member without space for
// checkpoints is not ready, since it will reject writes next. Both name the reason.
func TestReadinessSaysWhatIsMissing(t *testing.T) {
	n := newFakeNode(t)
	h := New(n, Config{}).Handler()
	n.leader.Store(testMember + 1)
	n.hold.Store(int64(734 * time.Millisecond))
	n.saved.Store(new(error(syscall.ENOSPC)))
	_, body := ask(t, h, http.MethodGet, "/readyz", "")
	for _, want := range []string{
		"[-]restart_hold failed: in its restart hold, votes in 734ms\n",
		"[-]disk_space failed: no checkpoint can be made: " + syscall.ENOSPC.Error() + "\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("GET /readyz = %s, want %q", body, want)
		}
	}
}

// A step of its clock holds a leader, too. It serves meanwhile, so it is ready.
func TestALeaderInAHoldIsReady(t *testing.T) {
	n := newFakeNode(t)
	h := New(n, Config{}).Handler()
	n.hold.Store(int64(time.Second))
	if code, body := ask(t, h, http.MethodGet, "/readyz", ""); code != http.StatusOK {
		t.Errorf("GET /readyz of a leader in a hold = %d %q, want 200", code, body)
	}
}

// A member that rejects writes because its disk is full is not ready, and names the reason.
func TestReadinessEndsWithTheDisk(t *testing.T) {
	n := newFakeNode(t)
	h := New(n, Config{}).Handler()
	n.full.Store(true)
	for path, ok := range map[string]bool{"/readyz": false, "/readyz/disk_space": false, "/readyz?exclude=disk_space": true, "/livez": true} {
		code, body := ask(t, h, http.MethodGet, path, "")
		if (code == http.StatusOK) != ok || !ok && !strings.Contains(body, "[-]disk_space failed: kvnode: disk is full\n") {
			t.Errorf("GET %s with a full disk = %d %q, want success %v", path, code, body, ok)
		}
	}
}

// A member with a stuck raft loop or applier is not alive, and names it.
// /health?serializable=true, which older probes use, and gRPC's health service agree with /livez.
func TestAMemberThatHangsIsNotAlive(t *testing.T) {
	n := newFakeNode(t)
	a := New(n, Config{ElectionTimeout: time.Second})
	h := a.Handler()
	for _, c := range []struct {
		loop, applier time.Duration
		failed        string
	}{
		{10 * time.Second, 10 * time.Second, ""},
		{10*time.Second + time.Millisecond, 0, "raft_loop"},
		{50 * time.Millisecond, time.Minute, "applier"},
	} {
		n.loopStall.Store(int64(c.loop))
		n.applierStall.Store(int64(c.applier))
		for path, hung := range map[string]bool{
			"/livez": c.failed != "", "/livez/serializable_read": false, "/health?serializable=true": c.failed != "", "/readyz": false,
			"/livez/raft_loop": c.failed == "raft_loop", "/livez/applier": c.failed == "applier",
		} {
			code, body := ask(t, h, http.MethodGet, path, "")
			if (code != http.StatusOK) != hung {
				t.Errorf("GET %s with a loop that hangs for %v and an applier for %v = %d %q, want failure %v", path, c.loop, c.applier, code, body, hung)
			}
			if hung && !(strings.Contains(body, c.failed) && strings.Contains(body, "at most 10s (10 election timeouts)")) {
				t.Errorf("GET %s does not name %s and the limit: %q", path, c.failed, body)
			}
		}
		if err := a.Liveness(t.Context()); (err != nil) != (c.failed != "") {
			t.Errorf("Liveness() = %v, want failure of %q", err, c.failed)
		}
	}
}
