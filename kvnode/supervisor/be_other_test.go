//go:build !linux

package guardian

func be() {}
