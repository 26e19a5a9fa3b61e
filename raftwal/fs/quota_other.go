//go:build !unix

package fs

import "errors"

var errQuota = errors.New("fs: quota exceeded")
