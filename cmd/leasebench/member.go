package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/internal/gctune"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
	"github.com/leaderlease/go/kvnode/supervisor"
)

// memberCommand makes this binary a kvnode server, with the few flags of etcd
// that package testcluster gives to every server.
const memberCommand = "member"

func newMember() *cobra.Command {
	var cfg server.Config
	var cluster, state string
	var supervised bool
	cmd := &cobra.Command{
		Use: memberCommand, Short: "run as a kvnode server, for the benchmark's own use", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Node.Cluster, err = parseCluster(cluster); err != nil {
				return err
			}
			cfg.Node.Existing = state == "existing"
			cfg.AllowPlaintext = true                                  // as etcd; members may have a network of their own
			cfg.Logger = slog.New(slog.NewJSONHandler(os.Stderr, nil)) // as kvnode's, and etcd's
			if !supervised {
				return serve(cmd.Context(), cfg)
			}
			client, err := supervisor.Connect()
			if err != nil || client == nil {
				return errors.Join(err, supervise(cfg))
			}
			cfg.Node.Supervisor = client
			return serve(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Node.Name, "name", "", "as etcd's")
	f.StringVar(&cfg.Node.DataDir, "data-dir", "", "as etcd's")
	f.StringSliceVar(&cfg.ListenClientURLs, "listen-client-urls", nil, "as etcd's")
	f.StringSliceVar(&cfg.Node.ClientURLs, "advertise-client-urls", nil, "as etcd's")
	f.StringSliceVar(&cfg.ListenPeerURLs, "listen-peer-urls", nil, "as etcd's")
	f.StringSliceVar(&cfg.AdvertisePeerURLs, "initial-advertise-peer-urls", nil, "as etcd's")
	f.StringVar(&cluster, "initial-cluster", "", "as etcd's")
	f.StringVar(&state, "initial-cluster-state", "new", "as etcd's")
	f.StringVar(&cfg.Node.Token, "initial-cluster-token", "", "as etcd's")
	f.BoolVar(&cfg.ClientTLS.Auto, "auto-tls", false, "as etcd's")
	f.BoolVar(&cfg.PeerTLS.Auto, "peer-auto-tls", false, "as etcd's")
	f.Int64Var(&cfg.API.QuotaBytes, "quota-backend-bytes", 0, "as etcd's")
	f.BoolVar(&supervised, "supervise", false, "as kvnode's")
	return cmd
}

// parseCluster takes name=url,name=url.
func parseCluster(s string) (members []kvnode.Member, err error) {
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		name, url, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("initial cluster: %q must be NAME=URL", part)
		}
		members = append(members, kvnode.Member{Name: name, PeerURLs: []string{url}})
	}
	return members, nil
}

// supervise runs the member as a child process, and notifies its peers when it has exited.
func supervise(cfg server.Config) error {
	exit, err := supervisor.Run(os.Args[1:], os.Environ())
	if err != nil {
		return err
	}
	exit.NotifyPeers(cfg.WithDefaults().PeerTLS, cfg.Logger)
	return exit.Repeat()
}

const stopTimeout = 5 * time.Second

// serve runs until ctx ends or the server fails.
func serve(ctx context.Context, cfg server.Config) error {
	defer gctune.Start()() // as kvnode's
	panicOnAbort()
	s, err := server.Start(cfg)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	stop, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	failure := s.Err()
	if err := s.Stop(stop); failure == nil {
		failure = err
	}
	return failure
}

// panicOnAbort makes the member panic on SIGABRT, with which package testcluster crashes it. A panic
// writes the stack of one goroutine. Go's own handler of that signal writes the stacks of all,
// in some 45,000 pieces, and takes 60 ms longer.
func panicOnAbort() {
	aborted := make(chan os.Signal, 1)
	signal.Notify(aborted, syscall.SIGABRT)
	go func() { panic(<-aborted) }()
}
