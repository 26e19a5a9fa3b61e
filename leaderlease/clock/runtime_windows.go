package clock

// The Go runtime reads the shared user page's InterruptTime on Windows. That is
// documented to include sleep, but it advances only with the system tick, and
// these tests have not run across a suspend there. So it is reported as not
// counting, and as coarse.
const runtimeWarning = "the runtime's clock on Windows is up to one system tick (0.5 to 15.6 ms) late, which MaxClockSkew must cover, and is not verified to count suspended time (assumption A2)"
