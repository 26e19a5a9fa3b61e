// Package problems collects the errors of a configuration, to report all of them at once.
package problems

import "fmt"

// List has the errors found so far.
type List []error

// If adds an error if wrong. The format gives the value and its limit.
func (l *List) If(wrong bool, format string, args ...any) {
	if wrong {
		*l = append(*l, fmt.Errorf(format, args...))
	}
}
