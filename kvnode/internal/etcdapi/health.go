package etcdapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
)

// healthy is etcd's reply to /health; Health is "true" or "false".
type healthy struct {
	Health string `json:"health"`
	Reason string `json:"reason"`
}

// serveHealth answers /health. With ?serializable=true it is about this member
// alone, as /livez is, for that is what asks so; ?exclude=NOSPACE leaves an alarm out.
func (a *API) serveHealth(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	reason := a.illness(r.Context(), query["exclude"], query.Get("serializable") == "true")
	if reason != "" {
		writeJSON(w, http.StatusServiceUnavailable, healthy{"false", reason})
		return
	}
	writeJSON(w, http.StatusOK, healthy{"true", ""})
}

// illness returns why the member is not healthy, in etcd's words, or nothing.
func (a *API) illness(ctx context.Context, exclude []string, serializable bool) string {
	for _, m := range a.node.Store().Alarms() {
		if name := m.GetAlarm().String(); !slices.Contains(exclude, name) {
			return "ALARM " + name
		}
	}
	if !serializable && a.node.Leader() == 0 {
		return "RAFT NO LEADER"
	}
	err := cmp.Or(a.alive(), a.Liveness(ctx)) // the first has etcd's words
	if !serializable {
		err = a.tryRead(ctx, false)
	}
	if err != nil {
		return "RANGE ERROR:" + status.Convert(err).Message()
	}
	return ""
}

// tryRead reads nothing, but is permitted like any read.
func (a *API) tryRead(ctx context.Context, serializable bool) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	mode := kvnode.ReadAuto
	if serializable {
		mode = kvnode.ReadSerializable
	}
	_, err := a.node.Read(ctx, mode)
	return clientError(err)
}
