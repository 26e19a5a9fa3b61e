//go:build !unix

package main

import "os"

// typed is for terminals that tell all processes at once.
func typed(os.Signal) bool { return false }
