package server

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/internal/problems"
	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server/internal/listener"
	"github.com/leaderlease/go/leaderlease"
)

const (
	// maxElection and minElectionRounds are etcd's limits, so that the settings of an etcd member are valid here.
	maxElection       = 50 * time.Second
	minElectionRounds = 5
	// minHashEvery keeps members from spending all their time on comparisons.
	minHashEvery = time.Second
	// minOpenStreams is enough for a few clients that only send requests.
	minOpenStreams = 16
)

// ConfigError means that Start has rejected the configuration, or what it requires of this
// machine: the errors of Validate and Check, files and ports.
type ConfigError struct{ Err error }

// Error implements error.
func (e *ConfigError) Error() string { return "the configuration is wrong:\n" + e.Err.Error() }

// Unwrap returns the reasons.
func (e *ConfigError) Unwrap() error { return e.Err }

// Validate reports what is wrong with c, after WithDefaults, and the errors of c.Node if the rest is right. It
// checks only c itself.
func (c Config) Validate() error {
	errs := slices.Concat(c.checkNames(), c.checkAddresses(), c.checkHosts(), c.checkTLS(), c.checkTimes(), c.checkLimits())
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	// The node checks the rest.
	return c.node(noListener{}).WithDefaults().Validate()
}

// noListener is the listener of a configuration that is only checked.
type noListener struct{ net.Listener }

func (c *Config) checkNames() (bad problems.List) {
	bad.If(strings.ContainsAny(c.Node.Name, "=,"),
		"Node.Name %q must not contain = or a comma, which separate members in Node.Cluster", c.Node.Name)
	return append(bad, c.checkCluster()...)
}

// checkCluster checks that all members are distinct, and that this one is among them with the
// URLs that it advertises.
func (c *Config) checkCluster() (errs []error) {
	owner := make(map[string]string)
	self := -1
	for i, m := range c.Node.Cluster {
		if m.Name == c.Node.Name {
			self = i
		}
		if m.Name != c.Node.Name { // AdvertisePeerURLs has this member's
			errs = append(errs, checkDialled("Node.Cluster", m.PeerURLs, nil)...)
		}
		for _, u := range m.PeerURLs {
			if other, ok := owner[u]; ok {
				errs = append(errs, fmt.Errorf("Node.Cluster gives %s to %q and to %q", u, other, m.Name))
			}
			owner[u] = m.Name
		}
	}
	if self < 0 {
		return append(errs, fmt.Errorf("Node.Cluster has no member %q, which is the Node.Name of this one", c.Node.Name))
	}
	if got, want := sorted(c.Node.Cluster[self].PeerURLs), sorted(c.AdvertisePeerURLs); !slices.Equal(got, want) {
		errs = append(errs, fmt.Errorf("Node.Cluster has %q at %s, but AdvertisePeerURLs is %s",
			c.Node.Name, strings.Join(got, ","), strings.Join(want, ",")))
	}
	return errs
}

func sorted(urls []string) []string { return slices.Sorted(slices.Values(urls)) }

func (c *Config) checkAddresses() []error {
	return slices.Concat(
		checkURLs("ListenPeerURLs", c.ListenPeerURLs, nil),
		checkClientURLs("ListenClientURLs", c.ListenClientURLs, nil),
		checkClientURLs("ListenClientHTTPURLs", c.ListenClientHTTPURLs, nil),
		checkClientURLs("ListenMetricsURLs", c.ListenMetricsURLs, nil),
		checkClientURLs("ListenRedisURLs", c.ListenRedisURLs, nil),
		checkDialled("AdvertisePeerURLs", c.AdvertisePeerURLs, c.ListenPeerURLs),
		// An unspecified address is allowed, because scripts for etcd advertise it and
		// clients may know the member's address.
		checkClientURLs("Node.ClientURLs", c.Node.ClientURLs, c.ListenClientURLs),
		c.checkAdvertised(),
	)
}

func (c *Config) checkTimes() (errs []error) {
	tick, election := c.Node.TickInterval, c.Node.ElectionTimeout
	switch {
	case tick <= 0:
		errs = append(errs, fmt.Errorf("Node.TickInterval %v must be positive", tick))
	case election < minElectionRounds*tick:
		errs = append(errs, fmt.Errorf("Node.ElectionTimeout %v must be %d times Node.TickInterval %v at least, or one late heartbeat triggers an election",
			election, minElectionRounds, tick))
	case election > maxElection:
		errs = append(errs, fmt.Errorf("Node.ElectionTimeout %v must be %v at most", election, maxElection))
	}
	if len(errs) == 0 {
		errs = c.checkLease()
	}
	return errs
}

// checkLease expects a valid heartbeat interval and election timeout.
func (c *Config) checkLease() (bad problems.List) {
	bad.If(c.Node.LeaseDuration < 0, "Node.LeaseDuration %v must not be negative", c.Node.LeaseDuration)
	bad.If(c.Node.LeaseDuration > c.longestLease(),
		"Node.LeaseDuration %v must be %v at most (Node.ElectionTimeout in whole Node.TickIntervals, less one of them), or it delays every fail-over",
		c.Node.LeaseDuration, c.longestLease())
	bad.If(c.Node.MaxClockSkew < 0, "Node.MaxClockSkew %v must not be negative", c.Node.MaxClockSkew)
	d, _ := c.Node.Lease()
	bad.If(c.Node.MaxClockSkew > 0 && c.Node.MaxClockSkew >= d,
		"Node.MaxClockSkew %v must be below Node.LeaseDuration %v, or no read is ever served under the lease", c.Node.MaxClockSkew, d)
	bad.If(c.Node.MaxDriftPPM < 0 || c.Node.MaxDriftPPM >= 1e6,
		"Node.MaxDriftPPM %d must be from 0, meaning the default, to 999999", c.Node.MaxDriftPPM)
	if len(bad) == 0 {
		bad = c.checkTogether()
	}
	return bad
}

// checkTogether lets the library check that the lease's parameters fit together.
func (c *Config) checkTogether() []error {
	duration, margin := c.Node.Lease()
	lease := leaderlease.Config{
		Raft: &raft.Config{
			ID: 1, ElectionTick: int(c.Node.ElectionTimeout / c.Node.TickInterval), HeartbeatTick: 1, Storage: raft.NewMemoryStorage(),
			PreVote: true, CheckQuorum: true, StepDownOnRemoval: true,
		},
		TickInterval: c.Node.TickInterval, Duration: duration, MaxClockSkew: margin, MaxDriftPPM: c.Node.MaxDriftPPM, Clock: c.Node.Clock,
	}.WithDefaults()
	err := lease.Validate()
	if err == nil {
		return nil
	}
	return []error{fmt.Errorf("Node.MaxClockSkew %v, Node.LeaseDuration %v and Node.MaxDriftPPM %d do not go together: %w",
		lease.MaxClockSkew, lease.Duration, lease.MaxDriftPPM, err)}
}

// longestLease is the longest lease that does not delay a fail-over. The node counts in heartbeat
// intervals.
func (c *Config) longestLease() time.Duration {
	tick := c.Node.TickInterval
	return c.Node.ElectionTimeout.Truncate(tick) - tick
}

func (c *Config) checkLimits() (bad problems.List) {
	bad.If(c.Node.MaxRequestBytes < 1 || c.Node.MaxRequestBytes > kvnode.MaxRequestLimit,
		"Node.MaxRequestBytes %d must be from 1 to %d", c.Node.MaxRequestBytes, kvnode.MaxRequestLimit)
	bad.If(c.MaxOpenStreams < minOpenStreams || c.MaxOpenStreams > math.MaxInt32,
		"MaxOpenStreams %d must be from %d to %d", c.MaxOpenStreams, minOpenStreams, math.MaxInt32)
	if err := c.API.Validate(); err != nil {
		bad = append(bad, err)
	}
	bad.If(c.Node.WarnApply < 0, "Node.WarnApply %v must not be negative", c.Node.WarnApply)
	bad.If(c.CorruptCheckTime != 0 && c.CorruptCheckTime < minHashEvery,
		"CorruptCheckTime %v must be 0, which is never, or %v at least: all members hash all keys each time", c.CorruptCheckTime, minHashEvery)
	bad.If(c.CompactHashCheckTime < minHashEvery, "CompactHashCheckTime %v must be %v at least", c.CompactHashCheckTime, minHashEvery)
	bad.If(c.Node.TTLCheckpoint < 0, "Node.TTLCheckpoint %v must not be negative", c.Node.TTLCheckpoint)
	_, err := parseRetention(c.AutoCompactionMode, c.AutoCompactionRetention)
	bad.If(err != nil, "AutoCompactionMode and AutoCompactionRetention: %w", err)
	bad.If(c.Keepalive.MinTime < 0, "Keepalive.MinTime %v must not be negative", c.Keepalive.MinTime)
	bad.If(c.Keepalive.Timeout < 0, "Keepalive.Timeout %v must not be negative", c.Keepalive.Timeout)
	return bad
}

// maxSocketPath is the longest path of a unix socket on Linux.
const maxSocketPath = 107

// checkClientURLs checks the form of client URLs, which may be unix sockets.
func checkClientURLs(field string, urls, known []string) (errs []error) {
	rest := slices.DeleteFunc(slices.Clone(urls), func(s string) bool {
		path, ok := listener.SocketPath(s)
		switch {
		case !ok || slices.Contains(known, s):
		case path == "":
			errs = append(errs, fmt.Errorf("%s %q must be unix:///path, or unixs:///path with TLS", field, s))
		case len(path) > maxSocketPath:
			errs = append(errs, fmt.Errorf("%s %q has a path of %d bytes, and the system takes %d", field, s, len(path), maxSocketPath))
		}
		return ok
	})
	return append(errs, checkURLs(field, rest, known)...)
}

// checkAdvertised requires a member of a larger cluster to advertise an address, because the
// other members forward requests to it.
func (c *Config) checkAdvertised() (errs []error) {
	onlySockets := !slices.ContainsFunc(c.Node.ClientURLs, func(s string) bool { _, ok := listener.SocketPath(s); return !ok })
	if onlySockets && len(c.Node.Cluster) > 1 {
		errs = append(errs, fmt.Errorf("Node.ClientURLs %s: other members cannot pass requests on to a unix socket; add one that is http or https",
			strings.Join(c.Node.ClientURLs, ",")))
	}
	return errs
}

// checkURLs checks the form of URLs. It skips URLs in known, which were checked before: defaults
// repeat other fields.
func checkURLs(field string, urls, known []string) (errs []error) {
	for _, s := range urls {
		if _, _, err := listener.ParseURL(s); err != nil && !slices.Contains(known, s) {
			errs = append(errs, fmt.Errorf("%s %w", field, err))
		}
	}
	return errs
}

// checkDialled checks peer URLs, which other members connect to. It skips wrong URLs in known,
// which were reported before.
func checkDialled(field string, urls, known []string) (errs []error) {
	for _, s := range urls {
		host, port, err := listener.ParseURL(s)
		switch {
		case err != nil && !slices.Contains(known, s):
			errs = append(errs, fmt.Errorf("%s %w", field, err))
		case err != nil:
		case listener.Wildcard(host):
			errs = append(errs, fmt.Errorf("%s %q: other members cannot connect to an unspecified address; give the one of this machine", field, s))
		case port == "0":
			errs = append(errs, fmt.Errorf("%s %q: other members cannot connect to port 0; give the one that is listened on", field, s))
		}
	}
	return errs
}

// newHosts returns a check for this member's host names and HostWhitelist.
func newHosts(c *Config) *listener.HostCheck {
	urls := slices.Concat(c.Node.ClientURLs, c.ListenClientURLs, c.ListenClientHTTPURLs, c.ListenMetricsURLs, c.AdvertisePeerURLs)
	return listener.NewHostCheck(urls, c.HostWhitelist, c.log())
}

// checkHosts rejects entries of HostWhitelist that cannot match a host.
func (c *Config) checkHosts() (errs []error) {
	for _, name := range c.HostWhitelist {
		if _, err := netip.ParseAddr(name); err != nil && name != listener.AnyHost && strings.ContainsAny(name, "*/:[] ") {
			errs = append(errs, fmt.Errorf("HostWhitelist %q must be a host name without scheme, port and wildcard, or just * for all", name))
		}
	}
	return errs
}
