package server

import (
	"context"
	"errors"
	"time"
)

// drainTime bounds the wait for requests under way. Longer: a client that
// does not read holds up a restart. Tests set it.
var drainTime = 2 * time.Second

// pagesTime bounds the same for HTTP.
const pagesTime = 500 * time.Millisecond

// Stop ends the server in the order in which clients notice least: readiness
// goes off, connections are told to go elsewhere, requests under way finish,
// leadership is transferred, the node stops. What cannot be finished before ctx
// ends is cut. Further calls return what the first did.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() { s.stopErr = s.shutdown(ctx) })
	return s.stopErr
}

func (s *Server) shutdown(ctx context.Context) error {
	s.stopping.Store(true)
	s.log.Info("stopping")

	s.drain(ctx)
	var err error
	if s.locks != nil {
		err = s.locks.Close()
	}
	err = errors.Join(err, s.node.Stop(ctx))
	// The pages last longest: /readyz and /metrics answer until the end.
	err = errors.Join(err, s.closePages(ctx))
	if s.gatewayConn != nil {
		err = errors.Join(err, s.gatewayConn.Close())
	}
	s.api.Close()
	s.end()
	s.wg.Wait()
	s.fail(nil)
	s.log.Info("stopped")
	return err
}

// drain lets requests under way finish and cuts what remains. Streams have no
// end of their own, so they are ended first.
func (s *Server) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	s.endStreams()
	s.api.EndStreams()
	s.clients.End()
	drained := make(chan struct{})
	s.wg.Go(func() {
		s.inside.GracefulStop()
		s.grpc.GracefulStop()
		close(drained)
	})
	select {
	case <-drained:
	case <-ctx.Done():
		s.cut.Store(true)
		s.log.Warn("requests under way are cut", "after", drainTime)
		s.inside.Stop()
		s.grpc.Stop()
	}
}

func (s *Server) closePages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pagesTime)
	defer cancel()
	var errs []error
	for _, p := range s.pages {
		if p.Shutdown(ctx) != nil {
			errs = append(errs, p.Close()) // somebody profiles, or does not read
		}
	}
	return errors.Join(errs...)
}
