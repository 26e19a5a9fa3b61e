//go:build race

package ttl

// raceEnabled: the detector makes plans ten times slower, so the model tries the
// shorter ones only.
const raceEnabled = true
