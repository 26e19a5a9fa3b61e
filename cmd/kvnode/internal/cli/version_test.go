package cli

import (
	"runtime/debug"
	"testing"
)

func TestCommitOf(t *testing.T) {
	revision, date := debug.BuildSetting{Key: "vcs.revision", Value: "0123abcd"}, debug.BuildSetting{Key: "vcs.time", Value: "2026-11-27T09:56:02Z"}
	for _, tc := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{&debug.BuildInfo{}, "unknown"},
		{&debug.BuildInfo{Settings: []debug.BuildSetting{revision, date}}, "0123abcd of 2026-11-27T09:56:02Z"},
		{&debug.BuildInfo{Settings: []debug.BuildSetting{revision, date, {Key: "vcs.modified", Value: "true"}}}, "0123abcd of 2026-11-27T09:56:02Z with changes"},
	} {
		if got := commitOf(tc.info); got != tc.want {
			t.Errorf("commitOf(%v) = %q, want %q", tc.info, got, tc.want)
		}
	}
}
