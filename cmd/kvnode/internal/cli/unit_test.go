package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/leaderlease/clock"
)

const unitDir = "../../../../deploy/systemd"

// settingsOf returns the lines of a unit by their names.
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

// The unit starts what this program is, with the file that is shipped beside it, and waits
// for as long as a stop may take.
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
