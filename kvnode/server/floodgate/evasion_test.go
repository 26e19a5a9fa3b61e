package floodgate

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// What looks like what honest clients send, and is not, is counted all the same.
func TestFloodsInDisguise(t *testing.T) {
	settings := bytes.Repeat([]byte{0, 4, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0}, 5)
	for name, one := range map[string]struct {
		streams int // that are open and half a second old
		what    []byte
		most    int // frames until it is closed
	}{
		"resets of one old stream":           {1, reset(1), maxDebt + startCredit + 5},
		"ends of one stream":                 {1, raw(frameData, flagEndStream, 1, 1), maxDebt + startCredit + 5},
		"long ends of one stream":            {1, raw(frameData, flagEndStream, 1, crumbLen-1), maxDebt + startCredit + 5},
		"DATA of padding alone":              {1, raw(frameData, flagPadded, 1, 256, 255), maxDebt + startCredit + 5},
		"crumbs with padding":                {1, raw(frameData, flagPadded, 1, 256+crumbLen-1, 255), crumbsPerFrame * (maxDebt + startCredit + 5)},
		"settings that concern many streams": {10_000, raw(frameSettings, 0, 0, len(settings), settings...), 15},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := connect(t, New(quiet(), 1<<20))
				for id := range uint32(one.streams) {
					if err := s.receive(request(2*id + 1)[:len(request(1))-headerLen-8]); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(young)
				var err error
				n := 0
				for ; err == nil && n < 30_000; n++ {
					err = s.receive(slices.Clone(one.what))
				}
				if !errors.Is(err, ErrFlood) || n > one.most {
					t.Errorf("after %d frames: %v, want ErrFlood within %d", n, err, one.most)
				}
			})
		})
	}
}
