//go:build !linux

package e2e

import (
	"errors"
	"testing"
)

// diskEnv makes the test binary hold a disk where that can be.
const diskEnv = "E2E_DISK"

// smallDisk is a disk of a member's own that can be full. Only Linux mounts one without privileges.
type smallDisk struct{ Dir string }

func newSmallDisk(*testing.T) *smallDisk { return nil }

func (*smallDisk) fill() error { return errors.ErrUnsupported }

func (*smallDisk) free() error { return errors.ErrUnsupported }

func holdDisk(string) error { return errors.ErrUnsupported }
