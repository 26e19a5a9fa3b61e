package metrics_test

import (
	"fmt"
	"log"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
	"github.com/leaderlease/go/leaderlease/metrics"
)

func Example() {
	storage := raft.NewMemoryStorage()
	_ = storage.SetHardState(&raftpb.HardState{Term: new(uint64(3))}) // not a first start
	lease, err := leaderlease.New(leaderlease.Config{
		TickInterval: 100 * time.Millisecond,
		Raft: &raft.Config{
			ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: storage,
			PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	lease.TryRead() // a read that comes too early

	leases := metrics.New()
	leases.Add("orders", lease)
	registry := prometheus.NewRegistry()
	registry.MustRegister(leases)

	families, err := registry.Gather() // as promhttp does
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch {
			case m.GetCounter().GetValue() > 0:
				fmt.Println(f.GetName(), values(m.GetLabel()), m.GetCounter().GetValue())
			case f.GetName() == "leaderlease_held", f.GetName() == "leaderlease_duration_seconds":
				fmt.Println(f.GetName(), values(m.GetLabel()), m.GetGauge().GetValue())
			}
		}
	}

	// Output:
	// leaderlease_duration_seconds [orders] 0.9
	// leaderlease_held [orders] 0
	// leaderlease_refusals_total [orders restart_hold] 1
}

func values[L interface{ GetValue() string }](labels []L) (values []string) {
	for _, l := range labels {
		values = append(values, l.GetValue())
	}
	return values
}
