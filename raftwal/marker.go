package raftwal

import (
	"fmt"

	"github.com/leaderlease/go/raftwal/fs"
)

// markerName is an empty file that says that the log has begun: where it is,
// there have been segments, durably. Logs of earlier versions get it when they
// are opened.
const markerName = "begun"

// putMarker makes the marker, unless there is one. The directory has been
// synced since the first segment has its name: a crash that kept the marker and
// lost that would leave a log that never opens.
func (l *Log) putMarker(files listing) error {
	if files.marked {
		return nil
	}
	f, err := l.dir.Create(markerName)
	if fs.IsNoSpace(err) {
		// A full disk must not keep anybody from the log. The next Open tries
		// again.
		l.cfg.Logger.Warn("no room for the marker", "file", markerName, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("raftwal: create %s: %w", markerName, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("raftwal: close %s: %w", markerName, err)
	}
	if err := l.syncDir(); err != nil {
		return fmt.Errorf("raftwal: %w", noSpace(err))
	}
	return nil
}
