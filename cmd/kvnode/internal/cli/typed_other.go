//go:build !unix

package cli

import "os"

// typed is for terminals that tell all processes at once.
func typed(os.Signal) bool { return false }
