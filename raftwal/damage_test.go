package raftwal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/raftwal/fs"
)

// sample is a log of 64 KiB to damage: four segments, with batches of one to
// five entries.
type sample struct {
	disk  *fs.Memory
	cfg   Config
	files map[string][]byte
	names []string
	// ends are, by file, where its batches begin and the last one ends.
	ends map[string][]int64
	// want are all entries, and before those without the last batch.
	want, before []*raftpb.Entry
}

const sampleSegment = 16 << 10

func newSample(t *testing.T) *sample {
	t.Helper()
	s := &sample{disk: fs.NewMemory(), files: map[string][]byte{}, ends: map[string][]int64{}}
	s.cfg = testConfig(s.disk)
	s.cfg.SegmentSize = sampleSegment
	l := mustOpen(t, s.cfg)
	for i := uint64(1); ; {
		n := 1 + i%5
		e := entries(1+i/50, i, i+n, int(37*i%400))
		must(t, l.Save(e, hard(1+i/50, 1, i-1), nil))
		i += n
		s.before, s.want = s.want, append(slices.Clip(s.want), e...)
		// The last batch is not the first of its segment.
		if len(l.mu.segments) == 4 && l.w.tail.end > sampleSegment*3/4 {
			break
		}
	}
	must(t, l.Close())
	for _, name := range segmentNames(t, s.disk) {
		s.files[name] = s.disk.Bytes(name)
	}
	s.names = slices.Sorted(maps.Keys(s.files))
	for _, name := range s.names {
		s.ends[name] = batchEnds(s.files[name])
	}
	return s
}

// batchEnds returns where the batches of a sound segment begin, and the end.
func batchEnds(b []byte) []int64 {
	nonce := le.Uint64(b[32:])
	ends := []int64{headerSize}
	for {
		at := ends[len(ends)-1]
		if at+batchHeader > int64(len(b)) || le.Uint64(b[at+batchMark:]) != mark(nonce, uint64(at)) {
			return ends
		}
		ends = append(ends, at+batchHeader+int64(le.Uint32(b[at+recordHeader+16:])))
	}
}

// open opens the sample with data in the place of one file.
func (s *sample) open(name string, data []byte) (*Log, error) {
	disk := s.disk.Clone()
	disk.SetBytes(name, data)
	cfg := s.cfg
	cfg.FS = disk
	return Open(cfg)
}

// judge checks what opening a damaged log has led to. The damage begins at
// offset at of file name.
func (s *sample) judge(name string, at int64, l *Log, err error) error {
	ends := s.ends[name]
	last := name == s.names[len(s.names)-1]
	var corrupt *CorruptError
	switch {
	case at >= ends[len(ends)-1]: // nothing has been written there
		if err != nil {
			return fmt.Errorf("damage to what is not in use: %w", err)
		}
		if l.mu.view.last() != uint64(len(s.want)) {
			return fmt.Errorf("%d entries, want %d", l.mu.view.last(), len(s.want))
		}
		return nil
	case err == nil && last && at >= ends[len(ends)-2]:
		got, err := l.Entries(1, l.mu.view.last()+1, noLimit)
		return errors.Join(err, sameEntries(got, s.before))
	case err == nil:
		return errors.New("it was accepted")
	case !errors.As(err, &corrupt):
		return fmt.Errorf("it was refused with %w", err)
	case corrupt.File != name || corrupt.Offset > at:
		return fmt.Errorf("it was found in %s at %d", corrupt.File, corrupt.Offset)
	}
	return nil
}

// TestFlipOfEveryBit flips each bit of a log of 64 KiB. Only in the very last
// batch may that pass for a torn tail; everywhere else where something was
// written it is refused, with the file and a place not behind the damage.
func TestFlipOfEveryBit(t *testing.T) {
	s := newSample(t)
	step := int64(1)
	if testing.Short() {
		step = 61 * 8
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	var flips, cut atomic.Int64
	var workers sync.WaitGroup
	for _, name := range s.names {
		workers.Go(func() {
			data := bytes.Clone(s.files[name])
			for bit := int64(0); bit < int64(len(data))*8; bit += step {
				data[bit/8] ^= 1 << (bit % 8)
				l, err := s.open(name, data)
				if e := s.judge(name, bit/8, l, err); e != nil {
					t.Errorf("%s: bit %d of byte %d: %v", name, bit%8, bit/8, e)
					return
				}
				if err == nil {
					if l.mu.view.last() != uint64(len(s.want)) {
						cut.Add(1)
					}
					must(t, l.Close())
				}
				data[bit/8] = s.files[name][bit/8]
				flips.Add(1)
			}
		})
	}
	workers.Wait()
	t.Logf("%d flips, of which %d were taken for a torn tail", flips.Load(), cut.Load())
}

// TestTruncationAtEveryByte cuts each file of the log short. No crash does
// that to a file that was written to its full size before it had its name.
func TestTruncationAtEveryByte(t *testing.T) {
	s := newSample(t)
	step := 1
	if testing.Short() {
		step = 61
	}
	for _, name := range s.names {
		for n := 0; n < len(s.files[name]); n += step {
			l, err := s.open(name, s.files[name][:n])
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || corrupt.File != name {
				t.Fatalf("%s cut at %d: Open() = %v, %v, want a refusal that names the file", name, n, l, err)
			}
		}
	}
}

// TestZerosFromEveryByte is a torn tail that ends anywhere: of the last batch,
// and of everything from then on, nothing is left.
func TestZerosFromEveryByte(t *testing.T) {
	s := newSample(t)
	name := s.names[len(s.names)-1]
	ends := s.ends[name]
	begin, end := ends[len(ends)-2], ends[len(ends)-1]
	whole := s.files[name]
	for n := begin; n <= end; n++ {
		data := bytes.Clone(whole)
		clear(data[n:])
		l, err := s.open(name, data)
		if err != nil {
			t.Fatalf("zeros from %d: %v", n, err)
		}
		want := s.before
		if bytes.Equal(data, whole) {
			want = s.want // the rest was zero anyway
		}
		if diff := sameEntries(all(t, l), want); diff != nil {
			t.Fatalf("zeros from %d: %v", n, diff)
		}
		torn := l.Recovered().Torn
		if begun := n >= begin+batchMark+8 && len(want) < len(s.want); begun != (torn != nil) {
			t.Fatalf("zeros from %d: torn tail %+v, want one: %t", n, torn, begun)
		}
		if torn != nil && (torn.File != name || torn.Offset != begin) {
			t.Fatalf("zeros from %d: torn tail %+v, want it in %s at %d", n, torn, name, begin)
		}
		must(t, l.Close())
	}
}

// TestMissingSegment takes one file away, as a restore of a backup may. Without
// the first the log has a gap, without one in the middle, too; that the last is
// missing nothing on the disk can tell, but that is not a state a crash leaves.
func TestMissingSegment(t *testing.T) {
	s := newSample(t)
	for i, name := range s.names[:len(s.names)-1] {
		disk := s.disk.Clone()
		must(t, disk.Remove(name))
		cfg := s.cfg
		cfg.FS = disk
		l, err := Open(cfg)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Errorf("without file %d: Open() = %v, %v, want a refusal", i, l, err)
		}
	}
}

// TestSwappedSegments gives two files each other's names.
func TestSwappedSegments(t *testing.T) {
	s := newSample(t)
	disk := s.disk.Clone()
	disk.SetBytes(s.names[1], s.files[s.names[2]])
	disk.SetBytes(s.names[2], s.files[s.names[1]])
	cfg := s.cfg
	cfg.FS = disk
	if _, err := Open(cfg); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Open() = %v, want %v", err, ErrCorrupt)
	}
}

// The first batches of a segment were durable before the segment had its name,
// so even the very last batch of the log is never a torn tail there.
func TestDamageToTheFirstBatchesIsNoTornTail(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	for i := uint64(1); len(l.mu.segments) < 2; i++ {
		must(t, l.Save(entries(1, i, i+1, 300), nil, nil))
	}
	name, end := l.w.seg.name, l.w.tail.end
	must(t, l.Close())
	for at := range end {
		data := disk.Bytes(name)
		data[at] ^= 0x10
		clone := disk.Clone()
		clone.SetBytes(name, data)
		c := cfg
		c.FS = clone
		if _, err := Open(c); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d of %d: Open() = %v, want %v", at, end, err, ErrCorrupt)
		}
	}
}

// A torn tail is reported by the Open that cuts it, and by no other; a process
// that only reads reports it and leaves it.
func TestTornTailIsCutOnce(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	must(t, l.Save(entries(1, 1, 3, 100), nil, nil))
	at := l.w.tail.end
	must(t, l.Save(entries(1, 3, 5, 600), nil, nil))
	must(t, l.Close())
	data := disk.Bytes(segmentName(1))
	clear(data[at+600:])
	disk.SetBytes(segmentName(1), data)
	for i, want := range []bool{true, true, true, false, false} {
		open := OpenReadOnly
		if i >= 2 {
			open = Open
		}
		l, err := open(cfg)
		must(t, err)
		if torn := l.Recovered().Torn; (torn != nil) != want {
			t.Errorf("opening %d: torn tail %+v, want one: %t", i, torn, want)
		}
		if diff := sameEntries(all(t, l), entries(1, 1, 3, 100)); diff != nil {
			t.Errorf("opening %d: %v", i, diff)
		}
		must(t, l.Close())
	}
}

// Offsets are kept in 32 bits. A file that is larger, and says so, is no
// segment, even if a client wrote it.
func TestSegmentOfMoreThan32BitsIsRefused(t *testing.T) {
	for _, tt := range []struct {
		size  uint64
		sound bool
	}{{math.MaxUint32, true}, {math.MaxUint32 + 1, false}, {math.MaxInt64, false}} {
		h := header{id: 1, size: tt.size, nonce: 7, sealed: headerSize, firstBatch: 1, nextIndex: 1}
		b := make([]byte, headerSize)
		h.encode(b)
		if _, _, reason := parseHeader(b, 1, int64(tt.size)); (reason == "") != tt.sound {
			t.Errorf("parseHeader() of a file of %d bytes = %q, want it to be sound: %t", tt.size, reason, tt.sound)
		}
	}
}
