package report

import "fmt"

// duration prints nanoseconds with three digits.
func duration(ns float64) string {
	if ns == 0 {
		return "–"
	}
	return scaled(ns, "ns", "µs", "ms", "s")
}

// rate prints a number per second with three digits.
func rate(n float64) string { return scaled(n, "", "k", "M") }

// bytesText prints bytes with three digits.
func bytesText(n float64) string { return scaled(n, " B", " kB", " MB", " GB") }

// scaled prints n with three digits in the largest unit that fits. Each unit is 1000
// times the one before.
func scaled(n float64, units ...string) string {
	for n >= 999.5 && len(units) > 1 {
		n, units = n/1000, units[1:]
	}
	return fmt.Sprintf("%.3g%s", n, units[0])
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
