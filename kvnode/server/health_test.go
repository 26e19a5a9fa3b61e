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
	all := trio(t, func(c *Config) {
		c.Node.TickInterval, c.Node.ElectionTimeout = 50*time.Millisecond, 500*time.Millisecond
	})
	left, others := leader(t, all)
	// On a busy machine the quorum may be lost for a moment.
	for deadline := time.Now().Add(patience); health(t, left, "") != healthpb.HealthCheckResponse_SERVING; {
		if time.Now().After(deadline) {
			t.Fatalf("health with a quorum is not SERVING in %v", patience)
		}
	}
	for _, s := range others {
		stop(t, s)
	}
	for left.Node().Leader() != 0 { // it steps down once it has not heard of the others
		time.Sleep(10 * time.Millisecond)
	}
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
