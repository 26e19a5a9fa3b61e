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
	// healthInterval is between two looks for a client that watches. Longer: it
	// goes on sending requests to a member that cannot serve them.
	healthInterval = time.Second
	// healthMaxAge is for how long a look counts for all clients that watch, so
	// that a thousand of them cost no more than two reads a second.
	healthMaxAge = healthInterval / 2
)

// healthServer is grpc.health.v1. Its services readyz and livez run the checks of
// /readyz and /livez. The empty name, the server as a whole, is for clients that
// choose a member (gRPC's client-side health checks): it is SERVING while the
// member serves requests. Etcd's is always SERVING, so that clients stay with a
// member that was cut off.
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
		return nil, status.Errorf(codes.NotFound, `kvnode: there is no service %q to check, only "", "readyz" and "livez"`, r.GetService())
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

// Watch implements healthpb.HealthServer. The last that a client hears of a server
// that stops is that it does not serve.
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
			// An error means that it is the client who has gone.
			_ = out.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING})
		}
		return clientError(context.Cause(ctx))
	}
}

// sharedProbe is a probe whose newest result many clients share.
type sharedProbe struct {
	probe probe // immutable
	// sem is held by the goroutine that looks, and by those that read or write the rest.
	sem chan struct{}
	result healthpb.HealthCheckResponse_ServingStatus
	at   time.Time
}

func newSharedProbe(p probe) *sharedProbe { return &sharedProbe{probe: p, sem: make(chan struct{}, 1)} }

// run runs the checks.
func (v *sharedProbe) run(ctx context.Context) healthpb.HealthCheckResponse_ServingStatus {
	if v.probe.failure(ctx) != nil {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

// latest returns the newest result, or looks if that is too old.
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
			return seen // it is this client that has gone; that says nothing to others
		}
		v.result, v.at = seen, time.Now()
	}
	return v.result
}
