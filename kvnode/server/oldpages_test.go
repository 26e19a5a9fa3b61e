package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// The paths that etcd has from its past: the gateway's of 3.3, which browsers cannot
// be made to use either, and expvar, which a port for metrics does not show.
func TestPathsOfThePast(t *testing.T) {
	metrics := free(t)
	s := solo(t, func(c *Config) { c.ListenMetricsURLs = []string{"http://" + metrics} })
	for _, test := range []struct {
		method, url, origin, want string
		code                      int
	}{
		{http.MethodPost, s.HTTPAddrs()[0] + "/v3beta/kv/put", "", `"revision":"2"`, http.StatusOK},
		{http.MethodPost, s.HTTPAddrs()[0] + "/v3/kv/range", "", `"count":"1"`, http.StatusOK},
		{http.MethodPost, s.HTTPAddrs()[0] + "/v3beta/kv/put", "cross-site", "", http.StatusForbidden},
		{http.MethodGet, s.HTTPAddrs()[0] + "/debug/vars", "", `"memstats"`, http.StatusOK},
		{http.MethodGet, metrics + "/debug/vars", "", "", http.StatusNotFound},
		{http.MethodPost, metrics + "/v3beta/kv/put", "", "", http.StatusNotFound},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, "http://"+test.url, strings.NewReader(`{"key":"Zm9v","value":"YmFy"}`))
		if err != nil {
			t.Fatal(err)
		}
		if test.origin != "" {
			request.Header.Set("Sec-Fetch-Site", test.origin)
		}
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != test.code || !strings.Contains(string(data), test.want) {
			t.Errorf("%s %s from %q = %d %.200s, %v, want %d and %q", test.method, test.url, test.origin, response.StatusCode, data, err, test.code, test.want)
		}
	}
}
