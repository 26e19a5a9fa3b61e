package server

import (
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leaderlease/go/kvnode/internal/listener"
)

const (
	headerTime = 5 * time.Second
	idleTime   = 2 * time.Minute
	// maxGatewayReply is gRPC's own limit of a message.
	maxGatewayReply = math.MaxInt32
)

// newPages returns what serves handler. There is no time limit on a whole
// request: profiles and watches through the gateway last. Headers and bodies have
// one each.
func newPages(handler http.Handler, log *slog.Logger) *http.Server {
	return listener.TrackHTTP(&http.Server{
		Handler: limitBodyTime(handler), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // of failed handshakes, most of all
	})
}

func (s *Server) servePages(l net.Listener, handler http.Handler) {
	p := newPages(handler, s.log)
	s.pages = append(s.pages, p)
	s.wg.Go(func() { s.served(l, p.Serve(l)) })
}

// metricsPages is what listen-metrics-urls serves: nothing that shows or
// changes data.
func (s *Server) metricsPages() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry}))
	mux.HandleFunc("GET /status", s.statusPage)
	// The API's own: /version, /health, /livez, /readyz and what is below them.
	probes := s.api.Handler()
	mux.Handle("/", probes)
	for _, path := range []string{"/health", "/readyz", "/readyz/"} {
		mux.Handle(path, s.unlessStopping(probes))
	}
	return mux
}

// clientPages adds what clients of HTTP get besides.
func (s *Server) clientPages(gateway http.Handler) *http.ServeMux {
	mux := s.metricsPages()
	if gateway != nil {
		// Browsers send what any page tells them to, also to ports that only they
		// can reach; other clients do not notice this. A page that asks under the
		// name that it came from itself is up to HostCheck.
		mux.Handle("/v3/", http.NewCrossOriginProtection().Handler(gateway))
		mux.Handle("/v3beta/", http.NewCrossOriginProtection().Handler(v3beta(gateway)))
	}
	s.leasePages(mux)
	mux.Handle("GET /debug/vars", expvar.Handler())
	if s.cfg.EnablePprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// unlessStopping turns readiness off as soon as the server stops, while it still
// serves what is under way.
func (s *Server) unlessStopping(probes http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.stopping.Load():
			http.Error(w, "[-]stopping failed: the server is stopping", http.StatusServiceUnavailable)
			return
		case s.gate.isClosed():
			http.Error(w, "[-]data_corruption failed: "+gateClosedText, http.StatusServiceUnavailable)
			return
		}
		probes.ServeHTTP(w, r)
	})
}

func (s *Server) statusPage(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Report()) }

func writeJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that has gone does not read its answer.
	_, _ = w.Write(append(data, '\n'))
}

// currentPath returns a path of the gateway by its name of today.
func currentPath(path string) string {
	if rest, ok := strings.CutPrefix(path, "/v3beta/"); ok {
		return "/v3/" + rest
	}
	return path
}

// v3beta serves the gateway's paths by their name in etcd 3.3, which clients of that
// age still use, and etcd still serves.
func v3beta(gateway http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := r.Clone(r.Context())
		now.URL.Path, now.URL.RawPath = currentPath(r.URL.Path), ""
		gateway.ServeHTTP(w, now)
	})
}

// bodyTime is how long the body of a request over HTTP may take to arrive. Longer:
// whoever sends a byte now and then has a goroutine and a connection for so long.
// Shorter: the largest request, of 12 MB, does not get through slow lines.
const bodyTime = time.Minute

// streamingPaths are the paths of the gateway whose requests are streams: a body there
// goes on as long as its client has something to ask, and costs what a watch costs.
// They are the names of today; currentPath knows the old ones.
var streamingPaths = map[string]bool{"/v3/watch": true, "/v3/lease/keepalive": true}

// limitBodyTime serves pages to requests whose bodies arrive in time. It bounds no answer,
// as profiles, locks and watches last.
func limitBodyTime(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody && !streamingPaths[currentPath(r.URL.Path)] {
			// Package http takes it away when the body is there. An error means that the
			// connection has ended, which whoever reads finds out.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
			timed := *r
			timed.Body = &timedBody{r.Body}
			r = &timed
		}
		pages.ServeHTTP(w, r)
	})
}

// timedBody is a body whose connection has a read deadline until it has arrived.
type timedBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("kvnode: the body of the request has not arrived within %v, which is the limit", bodyTime)
	}
	return n, err
}
