package etcdapi

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const (
	// healthInterval is the time between two checks for a watching client. With a longer one,
	// clients keep sending requests to a member that cannot serve them.
	healthInterval = time.Second
	// healthMaxAge is how long watching clients share a result, so that a thousand of them run
	// each probe at most twice per second.
	healthMaxAge = healthInterval / 2
)

// healthServer implements grpc.health.v1. Its services readyz and livez run the checks of /readyz
// and /livez. The empty name is for clients that choose a member by gRPC's client-side health
// checks: it is SERVING while the member serves requests. In etcd it does not depend on a leader,
// so clients stay with a partitioned member.
type healthServer struct {
	healthpb.UnsafeHealthServer
	services map[string]*sharedProbe // immutable
}

func (a *API) newHealthServer() *healthServer {
	return &healthServer{services: map[string]*sharedProbe{
		"": newSharedProbe(a.servingProbe()), "readyz": newSharedProbe(a.readyz()), "livez": newSharedProbe(a.livez()),
	}}
}

// Check implements healthpb.HealthServer.
func (s *healthServer) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	v, ok := s.services[r.GetService()]
	if !ok {
		return nil, status.Errorf(codes.NotFound, `kvnode: unknown health service %q (use "", "readyz" or "livez")`, r.GetService())
	}
	return &healthpb.HealthCheckResponse{Status: v.run(ctx)}, nil
}

// List implements healthpb.HealthServer.
func (s *healthServer) List(ctx context.Context, _ *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	all := make(map[string]*healthpb.HealthCheckResponse, len(s.services))
	for name, v := range s.services {
		all[name] = &healthpb.HealthCheckResponse{Status: v.latest(ctx)}
	}
	return &healthpb.HealthListResponse{Statuses: all}, nil
}

// Watch implements healthpb.HealthServer. When the server stops, the last message is NOT_SERVING.
func (s *healthServer) Watch(r *healthpb.HealthCheckRequest, out grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx := out.Context()
	v, known := s.services[r.GetService()]
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	sent := healthpb.HealthCheckResponse_UNKNOWN
	for {
		now := healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		if known {
			now = v.latest(ctx)
		}
		if now != sent {
			if err := out.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			sent = now
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		if known && sent != healthpb.HealthCheckResponse_NOT_SERVING {
			// Send fails only if the client has disconnected.
			_ = out.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING})
		}
		return clientError(context.Cause(ctx))
	}
}

// sharedProbe is a probe with a result that many clients share.
type sharedProbe struct {
	probe probe // immutable
	// sem guards result and at. latest holds it while it runs the probe.
	sem    chan struct{}
	result healthpb.HealthCheckResponse_ServingStatus
	at     time.Time
}

func newSharedProbe(p probe) *sharedProbe { return &sharedProbe{probe: p, sem: make(chan struct{}, 1)} }

// run runs the checks.
func (v *sharedProbe) run(ctx context.Context) healthpb.HealthCheckResponse_ServingStatus {
	if v.probe.failure(ctx) != nil {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

// latest returns the latest result, or runs the checks if it is too old.
func (v *sharedProbe) latest(ctx context.Context) healthpb.HealthCheckResponse_ServingStatus {
	select {
	case v.sem <- struct{}{}:
		defer func() { <-v.sem }()
	case <-ctx.Done():
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	if v.at.IsZero() || time.Since(v.at) >= healthMaxAge {
		seen := v.run(ctx)
		if ctx.Err() != nil {
			return seen // this client has left, so the result is not valid for others
		}
		v.result, v.at = seen, time.Now()
	}
	return v.result
}
