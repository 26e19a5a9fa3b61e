// Package faults collects what is wrong with a configuration, so that who has made it
// is told of everything at once.
package faults

import "fmt"

// List is what was found wrong, in the order of the checks.
type List []error

// If adds a fault if wrong is true. Format says what is wrong, with the value and its limit.
func (l *List) If(wrong bool, format string, args ...any) {
	if wrong {
		*l = append(*l, fmt.Errorf(format, args...))
	}
}
