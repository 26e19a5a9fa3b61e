//go:build deps

package main

import (
	_ "github.com/coreos/go-semver/semver"
	_ "go.etcd.io/etcd/tests/v3/framework"
	_ "go.etcd.io/etcd/tests/v3/framework/e2e"
	_ "go.etcd.io/etcd/tests/v3/framework/integration"
	_ "go.etcd.io/etcd/tests/v3/framework/unit"
	_ "go.etcd.io/etcd/tests/v3/robustness/failpoint"
)
