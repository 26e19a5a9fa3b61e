package main

import (
	"net"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
)

func TestAHundredReadTheSame(t *testing.T) {
	cfg := server.Config{Node: kvnode.Config{Name: "n1", DataDir: t.TempDir() + "/n1"}}
	for _, l := range []*net.Listener{&cfg.Node.Listener, &cfg.ClientListener} {
		var err error
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Node.Cluster = []kvnode.Member{{Name: "n1", PeerURLs: []string{"http://" + cfg.Node.Listener.Addr().String()}}}
	s, err := server.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	<-s.Ready()
	var out strings.Builder
	if err := run(t.Context(), &out, s.ClientAddrs()); err != nil || out.String() != "map[hello:100]\n" {
		t.Errorf("run() = %v, and wrote %q, want map[hello:100]", err, out.String())
	}
}
