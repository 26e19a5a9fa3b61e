package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leaderlease/go/leaderlease"
)

// Source is a lease to export. *leaderlease.Lease is one.
type Source interface {
	Stats() leaderlease.Stats
	Info() leaderlease.Info
}

// Collector is a prometheus.Collector of any number of groups. It reads their
// leases at each scrape and keeps no figures of its own, so it may be in several
// registries, and a lease may be in several Collectors. All methods are safe for
// concurrent use.
type Collector struct {
	mu struct {
		sync.Mutex
		groups map[string]Source
	}
}

var (
	_ prometheus.Collector = (*Collector)(nil)
	_ Source               = (*leaderlease.Lease)(nil)
)

// New returns a Collector without groups.
func New() *Collector {
	c := &Collector{}
	c.mu.groups = make(map[string]Source)
	return c
}

// Add exports source with the label group. It replaces the previous source of the group, as after a restart
// of the group in the same process. The name must be valid UTF-8, or every scrape fails.
func (c *Collector) Add(group string, source Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.groups[group] = source
}

// Remove ends the export of group. A scrape under way may still show it.
func (c *Collector) Remove(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.groups, group)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for i := range families {
		descs <- families[i].desc
	}
}

// Collect implements prometheus.Collector. Each lease is asked once.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, g := range c.groups() {
		r := reading{stats: g.source.Stats(), status: g.source.Info()}
		r.peers = countPeers(&r.status)
		for i := range families {
			families[i].collect(metrics, g.name, &r)
		}
	}
}

// collect sends the family's metrics of one group.
func (f *family) collect(metrics chan<- prometheus.Metric, group string, r *reading) {
	labels := [2]string{group}
	n := 1
	if len(f.values) > 1 {
		n = 2
	}
	for i, value := range f.values {
		if never(value) {
			continue
		}
		labels[1] = value
		m, err := prometheus.NewConstMetric(f.desc, f.kind, f.value(r, i), labels[:n]...)
		if err != nil {
			m = prometheus.NewInvalidMetric(f.desc, err)
		}
		metrics <- m
	}
}

type namedSource struct {
	name   string
	source Source
}

// groups returns a copy of the sources, so that a scrape does not hold the lock while it reads them.
func (c *Collector) groups() []namedSource {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]namedSource, 0, len(c.mu.groups))
	for name, source := range c.mu.groups {
		all = append(all, namedSource{name, source})
	}
	return all
}
