package etcdapi

import (
	"encoding/json"
	"net/http"
)

// Handler serves what etcd serves besides gRPC: /version, /health, /livez and
// /readyz. It is for a second listener. It logs nothing: probes come often.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", a.serveVersion)
	mux.HandleFunc("GET /health", a.serveHealth)
	a.livez().install(mux)
	a.readyz().install(mux)
	return mux
}

// versions is etcd's reply to /version, and what this is besides.
type versions struct {
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
	Storage string `json:"storage"`
	Node    string `json:"kvnode,omitempty"`
}

func (a *API) serveVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, versions{Server: Version, Cluster: Version, Storage: Version, Node: a.cfg.NodeVersion})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// An error here means that the client has gone.
	_ = json.NewEncoder(w).Encode(v)
}
