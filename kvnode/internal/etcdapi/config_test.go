package etcdapi

import (
	"math"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode"
)

// What is not said is etcd's; the deadline follows the election timeout, and
// only a quota may be negative.
func TestConfigHasTheDefaultsOfEtcd(t *testing.T) {
	c := Config{}.WithDefaults().as(kvnode.Config{ElectionTimeout: 3 * time.Second}.WithDefaults())
	if c.MaxTxnOps != 128 || c.MaxRequestBytes != 1572864 || c.MaxConcurrentStreams != math.MaxUint32 || c.MaxInFlight != 10_000 ||
		c.RequestTimeout != 11*time.Second || c.QuotaBytes != 2147483648 || c.Logger == nil {
		t.Errorf("defaults = %+v", c)
	}
	set := Config{MaxTxnOps: 1, MaxRequestBytes: 2, MaxConcurrentStreams: 3, MaxInFlight: 4, RequestTimeout: 5, QuotaBytes: -6}.WithDefaults().as(kvnode.Config{}.WithDefaults())
	if set.MaxTxnOps != 1 || set.MaxRequestBytes != 2 || set.MaxConcurrentStreams != 3 || set.MaxInFlight != 4 || set.RequestTimeout != 5 || set.QuotaBytes != -6 {
		t.Errorf("WithDefaults changed what was set: %+v", set)
	}
}
