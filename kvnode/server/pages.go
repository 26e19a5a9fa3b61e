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

	"github.com/leaderlease/go/kvnode/server/internal/listener"
)

const (
	// The time limits of a connection: for a request's header, and between requests.
	headerTime = 5 * time.Second
	idleTime   = 2 * time.Minute
	// maxGatewayReply is gRPC's own limit of a message.
	maxGatewayReply = math.MaxInt32
)

// newPages returns a server for handler. It limits the time for headers and for bodies, but not
// for a whole request: profiles and watches through the gateway are long-lived.
func newPages(handler http.Handler, log *slog.Logger) *http.Server {
	return listener.TrackHTTP(&http.Server{
		Handler: limitBodyTime(handler), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // mostly failed handshakes
	})
}

func (s *Server) servePages(l net.Listener, handler http.Handler) {
	p := newPages(handler, s.log)
	s.pages = append(s.pages, p)
	s.wg.Go(func() { s.served(l, p.Serve(l)) })
}

// metricsPages returns the pages of ListenMetricsURLs. They neither show nor change data.
func (s *Server) metricsPages() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry}))
	mux.HandleFunc("GET /status", s.statusPage)
	// The API serves /version, /health, /livez, /readyz and the paths below them.
	probes := s.api.Handler()
	mux.Handle("/", probes)
	for _, path := range []string{"/health", "/readyz", "/readyz/"} {
		mux.Handle(path, s.whileServing(probes))
	}
	return mux
}

// clientPages returns metricsPages and the pages for HTTP clients.
func (s *Server) clientPages(gateway http.Handler) *http.ServeMux {
	mux := s.metricsPages()
	if gateway != nil {
		// A page of another site could make a browser send requests to a port that only the browser can reach. The
		// protection does not affect other clients. HostCheck handles pages of a host name that was rebound to this
		// member's address.
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

// whileServing turns readiness off while the gate is closed, and when the server begins to stop, though
// requests in progress are still served.
func (s *Server) whileServing(probes http.Handler) http.Handler {
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
	// Write fails only if the client has disconnected.
	_, _ = w.Write(append(data, '\n'))
}

// currentPath maps the gateway's paths of etcd 3.3 to the current ones.
func currentPath(path string) string {
	if rest, ok := strings.CutPrefix(path, "/v3beta/"); ok {
		return "/v3/" + rest
	}
	return path
}

// v3beta serves the gateway under etcd 3.3's paths, which etcd still serves for old clients.
func v3beta(gateway http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current := r.Clone(r.Context())
		current.URL.Path, current.URL.RawPath = currentPath(r.URL.Path), ""
		gateway.ServeHTTP(w, current)
	})
}

// bodyTime limits the arrival of a request's body. With a longer time, a client that sends a byte now and then holds
// a goroutine and a connection for longer. With a shorter one, the largest request, of 12 MB, fails on slow links.
const bodyTime = time.Minute

// streamingPaths are the gateway's paths with streams of requests. Their bodies have no time
// limit; they cost as much as a watch. currentPath maps the old names.
var streamingPaths = map[string]bool{"/v3/watch": true, "/v3/lease/keepalive": true}

// limitBodyTime limits the arrival of bodies. It does not limit answers, since profiles, locks and
// watches are long-lived.
func limitBodyTime(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody && !streamingPaths[currentPath(r.URL.Path)] {
			// Package http removes the deadline when the body is complete. An error means
			// that the connection is closed, which the next read reports.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
			timed := *r
			timed.Body = &timedBody{r.Body}
			r = &timed
		}
		pages.ServeHTTP(w, r)
	})
}

// timedBody is a body that must arrive before its connection's read deadline.
type timedBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("kvnode: the body of the request has not arrived within the limit of %v", bodyTime)
	}
	return n, err
}
