package peerurl

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	many := make([]string, MaxURLs+1)
	for i := range many {
		many[i] = fmt.Sprintf("http://10.0.0.1:%d", 1000+i)
	}
	long := "http://" + strings.Repeat("a", MaxLength-len("http://:1")) + ":1"
	for _, test := range []struct {
		name string
		urls []string
		want string // part of the error, empty if there is none
	}{
		{"none", nil, "needs a peer URL"},
		{"the maximum number", many[:MaxURLs], ""},
		{"one too many", many, "33 peer URLs of a member exceed the limit of 32"},
		{"the maximum length", []string{long}, ""},
		{"a byte too long", []string{"http://a" + long[len("http://"):]}, "513 bytes exceeds the limit of 512"},
		{"no port", []string{"http://a"}, "scheme://host:port"},
	} {
		if err := Check(test.urls); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Check() = %v, want %q", test.name, err, test.want)
		}
	}
}
