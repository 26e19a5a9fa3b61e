//go:build !amd64 && !arm64

package clock

import (
	"errors"
	"fmt"
	"runtime"
)

func newVDSOClock() (platform, error) {
	return nil, fmt.Errorf("%w on linux/%s", errors.ErrUnsupported, runtime.GOARCH)
}
