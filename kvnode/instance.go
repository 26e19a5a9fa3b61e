package kvnode

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// An instance proves, to those who have met a member, that its directory is still the
// one that it had: whoever knows it could pose for a directory that was not lost. So
// it is told to members only, and all others are told a digest, by which an instance
// can be recognised. Versions that show instances as they are look no further than
// whether there is one.

const digestPrefix = "sha256:"

// digestOf returns what a roster says of an instance, nothing of none.
func digestOf(instance string) string {
	if instance == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("kvnode instance\x00" + instance))
	return digestPrefix + hex.EncodeToString(sum[:16])
}

// isInstance reports whether instance is the one that a registry or a roster has.
// Nothing says that there was none yet.
func isInstance(known, instance string) bool {
	if strings.HasPrefix(known, digestPrefix) {
		return known == digestOf(instance)
	}
	return known == "" || known == instance
}
