package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Counts counts operations of one kind.
type Counts struct {
	Done   int64
	Failed int64
	// Stale reads are below the version floor. They count as done, too.
	Stale int64
	// Paths are those of the reads that were done.
	Paths [pathCount]int64
	// Errors are the failures by text; texts beyond maxTexts are one.
	Errors map[string]int64
}

// Add adds the counts of another part.
func (c *Counts) Add(part *Counts) {
	c.Done += part.Done
	c.Failed += part.Failed
	c.Stale += part.Stale
	for p, n := range part.Paths {
		c.Paths[p] += n
	}
	for text, n := range part.Errors {
		c.text(text, n)
	}
}

// Tally is the outcome of operations of one kind.
type Tally struct {
	Counts
	// Latency of operations that were done and timed, in nanoseconds.
	Latency *hdrhistogram.Histogram
}

// Latencies from 1 ns to 10 minutes are kept with 3 significant digits.
const (
	longest = int64(10 * time.Minute)
	digits  = 3
)

// NewTally returns an empty tally.
func NewTally() *Tally {
	return &Tally{Latency: hdrhistogram.New(1, longest, digits)}
}

// Quantile returns the latency that the fraction q of the timed operations
// stayed within, 0 if there are none.
func (t *Tally) Quantile(q float64) time.Duration {
	if t.Latency.TotalCount() == 0 {
		return 0
	}
	return time.Duration(t.Latency.ValueAtQuantile(100 * q))
}

// Supports reports whether there are enough timed operations for a quantile: one
// that lies beyond it.
func (t *Tally) Supports(q float64) bool {
	return float64(t.Latency.TotalCount())*(1-q) >= 1-rounding
}

// rounding is more than what 1−q is off for a q such as 0.999.
const rounding = 1e-6

// maxTexts and textLen limit the error texts that are kept.
const (
	maxTexts = 12
	textLen  = 120
)

// Record counts an operation that was done and took d. Load does not need it.
func (t *Tally) Record(d time.Duration) {
	t.Done++
	_ = t.Latency.RecordValue(min(max(int64(d), 1), longest)) // within its range
}

// Late records the latency of an operation that began in time and ended after the
// measurement, so that a stall at the end shows. It does not count as done.
func (t *Tally) Late(d time.Duration) {
	_ = t.Latency.RecordValue(min(max(int64(d), 1), longest)) // within its range
}

// Fail counts an operation that failed.
func (c *Counts) Fail(err error) {
	text := err.Error()
	c.Failed++
	c.text(text[:min(len(text), textLen)], 1)
}

// text counts n errors by their text.
func (c *Counts) text(text string, n int64) {
	if c.Errors == nil {
		c.Errors = make(map[string]int64)
	}
	if _, known := c.Errors[text]; !known && len(c.Errors) >= maxTexts {
		text = "other errors"
	}
	c.Errors[text] += n
}

// latencies collects those of one client and hands them on in bulk, so that
// clients hardly meet at the histogram's lock.
type latencies struct {
	mu   *sync.Mutex
	to   *hdrhistogram.Histogram
	kept []int64
}

const keptLatencies = 128

func (l *latencies) record(d time.Duration) {
	l.kept = append(l.kept, min(max(int64(d), 1), longest))
	if len(l.kept) == keptLatencies {
		l.flush()
	}
}

func (l *latencies) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.kept {
		_ = l.to.RecordValue(v) // within its range
	}
	l.kept = l.kept[:0]
}
