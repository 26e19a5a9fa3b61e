package leasetrace

// Exports for package leasetrace_test, which imports leaderlease, an importer of this package.
const (
	ReadEvery   = readEvery
	OlderSuffix = olderSuffix
)

var RecordUpTo = record

// Break closes the file of r, so that writes fail.
func Break(r *Recorder) { _ = r.file.Close() }
