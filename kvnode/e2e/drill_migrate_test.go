package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
)

// drillMigrate has clients write to the etcd while it is copied. They stop when the page says so.
func drillMigrate(t *testing.T, m *machines) {
	m.found()
	old, _ := memberClients(t, m.startEtcd("etcd"))
	maps.Copy(m.values, map[string]string{"FROM": m.values["ETCD"], "FROM_TLS": m.path("etcd"), "TO": m.values["M1"], "TO_TLS": m.path("tls")})
	puts(t, old, "before/", 100)
	a, _ := memberClients(t, m.Cluster)
	m.between = "until test -e ../stopped; do sleep 0.1; done\n"
	late := make(chan error, 1)
	ctx := deadline(t)
	go func() {
		var err error
		for i := 0; i < 100 && err == nil; i++ {
			_, err = old.Put(ctx, fmt.Sprint("late/", i), "v")
		}
		late <- errors.Join(err, os.WriteFile(m.path("stopped"), nil, 0o600))
	}()
	m.perform("mirror")
	must(t, <-late)
	for _, prefix := range []string{"before/", "late/"} {
		if n, _ := count(t, a, prefix); n != 100 {
			t.Errorf("%d of 100 keys %s are there", n, prefix)
		}
	}
}
