package server

import (
	"net/http"
	"strings"
)

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
