package report

import (
	"fmt"
	"time"
)

// duration prints nanoseconds with three digits.
func duration(ns float64) string {
	switch {
	case ns == 0:
		return "–"
	case ns < 1e3:
		return fmt.Sprintf("%.3gns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.3gµs", ns/1e3)
	case ns < 999.5e6:
		return fmt.Sprintf("%.3gms", ns/1e6)
	default:
		return fmt.Sprintf("%.3gs", ns/float64(time.Second))
	}
}

// rate prints a number per second with three digits.
func rate(n float64) string {
	switch {
	case n < 999.5:
		return fmt.Sprintf("%.3g", n)
	case n < 999.5e3:
		return fmt.Sprintf("%.3gk", n/1e3)
	default:
		return fmt.Sprintf("%.3gM", n/1e6)
	}
}

func ratio(x float64) string {
	switch {
	case x == 0:
		return "–"
	case x >= 99.5:
		return fmt.Sprintf("%.0f×", x)
	default:
		return fmt.Sprintf("%.3g×", x)
	}
}

// spread prints a median with its range.
func spread(s Spread, show func(float64) string) string {
	if s.Min == s.Max {
		return show(s.Median)
	}
	return fmt.Sprintf("%s [%s, %s]", show(s.Median), show(s.Min), show(s.Max))
}
