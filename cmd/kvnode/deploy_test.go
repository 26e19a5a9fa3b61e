package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
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
	"github.com/leaderlease/go/leaderlease/clock"
)

// manifest holds the fields of a static pod that the test needs.
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

// pki makes the files that kubeadm makes for etcd, and returns the TLS configuration of its clients.
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

// The manifests that kubeadm writes for etcd 3.5, 3.6 and 3.7 start kvnode; only addresses and paths
// are replaced. The probes succeed, and the client of kubeadm's health check writes at all
// addresses. The second start, with data, is when the check of InitialCorruptCheck is due.
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
					s.exited <- run(System{Args: pod.Command[1:], Stdout: &s.stderr, Stderr: &s.stderr, Exit: func(int) {}})
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

// statefulSet holds the fields of deploy/kubernetes that the test needs.
type statefulSet struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		ServiceName string `yaml:"serviceName"`
		Replicas    int
		Template    struct {
			Spec struct {
				EnableServiceLinks            *bool   `yaml:"enableServiceLinks"`
				TerminationGracePeriodSeconds float64 `yaml:"terminationGracePeriodSeconds"`
				SecurityContext               struct {
					RunAsUser int `yaml:"runAsUser"`
				} `yaml:"securityContext"`
				Containers []struct {
					Env          []struct{ Name, Value string }
					VolumeMounts []struct {
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				}
			}
		}
	}
}

func shippedSet(t *testing.T) *statefulSet {
	t.Helper()
	data, err := os.ReadFile("../../deploy/kubernetes/kvnode.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		var s statefulSet
		if err := yaml.Unmarshal([]byte(doc), &s); s.Kind == "StatefulSet" {
			return &s
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("deploy/kubernetes has no StatefulSet")
	return nil
}

// Each pod of the StatefulSet is a member of the cluster in its flags, keeps its data on the volume,
// and has enough time for an orderly stop.
func TestTheStatefulSetStartsMembers(t *testing.T) {
	s := shippedSet(t)
	spec := s.Spec.Template.Spec
	if spec.TerminationGracePeriodSeconds <= stopTime.Seconds() {
		t.Errorf("terminationGracePeriodSeconds: %v, want more than %v", spec.TerminationGracePeriodSeconds, stopTime)
	}
	if links := spec.EnableServiceLinks; links == nil || *links {
		t.Error("enableServiceLinks is on: KVNODE_CLIENT_SERVICE_HOST and the like would be taken for settings")
	}
	pod := spec.Containers[0]
	for ordinal := range s.Spec.Replicas {
		name := fmt.Sprintf("%s-%d", s.Metadata.Name, ordinal)
		environ := []string{"KVNODE_NAME=" + name}
		for _, v := range pod.Env {
			if v.Value != "" {
				environ = append(environ, v.Name+"="+strings.ReplaceAll(v.Value, "$(KVNODE_NAME)", name))
			}
		}
		var out, errs buffer
		code := run(System{Args: []string{"serve", "--print-config"}, Environ: environ, Stdout: &out, Stderr: &errs})
		peer := fmt.Sprintf("http://%s.%s:2380", name, s.Spec.ServiceName)
		for _, want := range []string{
			"data-dir: " + pod.VolumeMounts[0].MountPath + "/", "initial-advertise-peer-urls: " + peer + " ", name + "=" + peer,
			fmt.Sprintf("%s-%d=", s.Metadata.Name, s.Spec.Replicas-1),
		} {
			if code != exitOK || !strings.Contains(out.String(), want) {
				t.Errorf("pod %s = %d %s, want %s in %s", name, code, errs.String(), want, out.String())
			}
		}
		if strings.Contains(out.String(), fmt.Sprintf("%s-%d=", s.Metadata.Name, s.Spec.Replicas)) {
			t.Errorf("there are %d pods, and more members: %s", s.Spec.Replicas, out.String())
		}
	}
}

// The container's user is the pod's, and may write to the directory above the data directory.
func TestTheContainerIsThePods(t *testing.T) {
	data, err := os.ReadFile("../../deploy/container/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	user := fmt.Sprint(shippedSet(t).Spec.Template.Spec.SecurityContext.RunAsUser)
	for _, want := range []string{"USER " + user + ":", "--chown=" + user + ":" + user + " README /var/lib/kvnode/", "KVNODE_DATA_DIR=/var/lib/kvnode/data"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the Containerfile lacks %s:\n%s", want, data)
		}
	}
}

const unitDir = "../../deploy/systemd"

// settingsOf returns the settings of a unit by name.
func settingsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(unitDir, file))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			all[name] = value
		}
	}
	return all
}

// The unit starts this program with the configuration file shipped beside it, and waits for an
// orderly stop.
func TestTheUnitStartsAMember(t *testing.T) {
	unit := settingsOf(t, "kvnode.service")
	if unit["Type"] != "notify" {
		t.Errorf("Type=%s, want notify: serve says when it is ready", unit["Type"])
	}
	if stop, err := time.ParseDuration(unit["TimeoutStopSec"]); err != nil || stop <= stopTime {
		t.Errorf("TimeoutStopSec=%s (%v), want more than %v, which an orderly stop may take", unit["TimeoutStopSec"], err, stopTime)
	}
	// PrivateDevices would hide the device. Most machines have none, so the loss would go unnoticed.
	if unit["PrivateDevices"] != "" || unit["DeviceAllow"] != clock.DefaultVMClock+" r" {
		t.Errorf("PrivateDevices=%s, DeviceAllow=%s: want that %s may be read", unit["PrivateDevices"], unit["DeviceAllow"], clock.DefaultVMClock)
	}
	args := strings.Fields(unit["ExecStart"])
	if len(args) < 2 || filepath.Base(args[0]) != "kvnode" {
		t.Fatalf("ExecStart=%s, want kvnode with its arguments", unit["ExecStart"])
	}
	for i, arg := range args {
		args[i] = strings.Replace(arg, "/etc/kvnode", unitDir, 1)
	}
	code, stdout, stderr := kvnode(append(args[1:], "--print-config")...)
	if code != exitOK {
		t.Fatalf("kvnode %v = %d: %s", args[1:], code, stderr)
	}
	for line := range strings.Lines(stdout) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == "data-dir" {
			if got := strings.Fields(value)[0]; got != "/var/lib/"+unit["StateDirectory"] {
				t.Errorf("data-dir is %s, and the unit may write to /var/lib/%s only", got, unit["StateDirectory"])
			}
		}
	}
}
