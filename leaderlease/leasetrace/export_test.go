package leasetrace

// What the tests in leasetrace_test know of the Recorder. They are not in this package because
// leaderlease, which they need, imports it.
const (
	ReadEvery   = readEvery
	OlderSuffix = olderSuffix
)

var RecordUpTo = record

// Break closes the file of r, as a disk that is gone does.
func Break(r *Recorder) { _ = r.file.Close() }
