package main

import (
	"strings"
	"testing"
)

const want = `the first holder has written, and is paused
the second holder has written; its token is higher: true
the first wakes up and writes:
  to kvnode:    refused: the lock is lost
  to the other: refused as stale: true
kvnode has "by the second", the other "by the second"
`

func TestThePausedHolderIsRefused(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("run() wrote:\n%s\nwant:\n%s", out.String(), want)
	}
}
