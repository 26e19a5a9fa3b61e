package cli

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.yaml.in/yaml/v3"

	"github.com/leaderlease/go/internal/tlstest"
)

// manifest is what a test needs of a static pod.
type manifest struct {
	Spec struct {
		Containers []struct {
			Command                                     []string
			LivenessProbe, ReadinessProbe, StartupProbe struct {
				HTTPGet struct{ Path string } `yaml:"httpGet"`
			}
		}
	}
}

// pki makes the files that kubeadm makes for etcd, and returns what its clients show.
func pki(t *testing.T, dir string) *tls.Config {
	t.Helper()
	ca := tlstest.New(t, "etcd-ca")
	tlstest.Write(t, dir, "ca.crt", ca.PEM)
	hosts := []string{"control-plane", "localhost", "127.0.0.1", "::1"}
	ca.Issue(hosts, tlstest.For("control-plane")).Write(dir, "server")
	ca.Issue(hosts, tlstest.For("control-plane")).Write(dir, "peer")
	client := ca.Issue(nil, tlstest.For("kube-etcd-healthcheck-client"), tlstest.Only(x509.ExtKeyUsageClientAuth))
	pair, err := tls.X509KeyPair(client.Cert, client.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
}

// What kubeadm writes for etcd 3.5, 3.6 and 3.7 starts kvnode, but for addresses and
// paths as it stands there: the probes succeed, and the client of kubeadm's health
// check writes at all addresses; so it does with the data of an earlier start, which is when the
// check of InitialCorruptCheck is due.
func TestKubeadm(t *testing.T) {
	for _, name := range []string{"etcd-3.5-health", "etcd-3.5", "etcd-3.6", "etcd-3.7"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", "kubeadm", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			local, outside, metrics := free(t), free(t), free(t)
			var m manifest
			text := strings.NewReplacer("/etc/kubernetes/pki/etcd", dir, "/var/lib/etcd", filepath.Join(dir, "data"),
				"127.0.0.1:2379", local, "192.168.1.10:2379", outside, "192.168.1.10:2380", free(t), "127.0.0.1:2381", metrics).Replace(string(data))
			if err := yaml.Unmarshal([]byte(text), &m); err != nil {
				t.Fatal(err)
			}
			pod := m.Spec.Containers[0]
			client := pki(t, dir)
			starts := 1
			if name == "etcd-3.6" {
				starts = 2
			}
			for range starts {
				s := &served{t: t, exited: make(chan int, 1)}
				go func() {
					s.exited <- Main(System{Args: pod.Command[1:], Stdout: &s.stderr, Stderr: &s.stderr, Exit: func(int) {}})
				}()
				s.says("ready to serve client requests")
				for _, path := range []string{pod.LivenessProbe.HTTPGet.Path, pod.ReadinessProbe.HTTPGet.Path, pod.StartupProbe.HTTPGet.Path} {
					if path != "" {
						probe(t, "http://"+metrics+path)
					}
				}
				for _, addr := range []string{local, outside} {
					put(t, addr, client)
				}
				send(t, syscall.SIGTERM)
				s.exits(exitOK)
				if strings.Contains(s.stderr.String(), `"level":"ERROR"`) {
					t.Errorf("the log has errors: %s", s.stderr.String())
				}
			}
		})
	}
}

func probe(t *testing.T, url string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("GET %s = %s, want 200", url, response.Status)
	}
}

func put(t *testing.T, addr string, secure *tls.Config) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + addr}, TLS: secure, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Errorf("Put at %s: %v", addr, err)
	}
}
