package server

import (
	"context"
	"net/http"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// health asks as Kubernetes' probes do.
func health(t *testing.T, s *Server, service string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := healthpb.NewHealthClient(dial(t, s)).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatalf("Check(%q) of %s: %v", service, s.cfg.Node.Name, err)
	}
	return r.GetStatus()
}

// A member without a quorum is alive and not ready, whichever way one asks.
func TestHealthWithoutAQuorum(t *testing.T) {
	skipShort(t)
	all := trio(t, elects(500*time.Millisecond))
	left, others := leader(t, all)
	// On a busy machine the quorum may be lost for a moment.
	until(t, "health with a quorum is SERVING", func() bool { return health(t, left, "") == healthpb.HealthCheckResponse_SERVING })
	for _, s := range others {
		stop(t, s)
	}
	until(t, "a leader without the others steps down", func() bool { return left.Node().Leader() == 0 })
	if got := health(t, left, ""); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health without a quorum = %v, want NOT_SERVING", got)
	}
	if got := health(t, left, "livez"); got != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health of the process without a quorum = %v, want SERVING", got)
	}
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/livez": http.StatusOK} {
		if code, body := page(t, left, path); code != want {
			t.Errorf("GET %s without a quorum = %d %s, want %d", path, code, body, want)
		}
	}
}

// A member that has restarted serves as soon as it is ready, and says so over gRPC although it may not
// vote yet. etcd's fault injection asks once it has seen the line that says that a member is ready.
func TestHealthAfterARestart(t *testing.T) {
	_, others := leader(t, trio(t))
	stop(t, others[0])
	s, err := again(t, others[0], func(*Config) {})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the member is ready", s.Ready())
	if got := health(t, s, ""); got != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health of a member that is ready = %v, want SERVING", got)
	}
}
