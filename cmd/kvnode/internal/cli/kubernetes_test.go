package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// statefulSet is what a test needs of deploy/kubernetes.
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
	data, err := os.ReadFile("../../../../deploy/kubernetes/kvnode.yaml")
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

// Each pod of the StatefulSet is a member of the cluster that all of them are told of, keeps its data
// on the volume, and is given the time that an orderly stop takes.
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
		code := Main(System{Args: []string{"serve", "--print-config"}, Environ: environ, Stdout: &out, Stderr: &errs})
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

// The container's user may write to the directory that its data is in, and is the pod's.
func TestTheContainerIsThePods(t *testing.T) {
	data, err := os.ReadFile("../../../../deploy/container/Containerfile")
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
