//go:build !linux

package supervisor

func be() {}
