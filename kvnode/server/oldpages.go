package server

import (
	"net/http"
	"strings"
)

// v3beta serves the gateway's paths by their name in etcd 3.3, which clients of that
// age still use, and etcd still serves.
func v3beta(gateway http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := r.Clone(r.Context())
		now.URL.Path, now.URL.RawPath = strings.Replace(r.URL.Path, "/v3beta/", "/v3/", 1), ""
		gateway.ServeHTTP(w, now)
	})
}
