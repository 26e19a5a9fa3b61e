package raftwal

import (
	"errors"
	"runtime"
	"testing"

	"github.com/leaderlease/go/raftwal/fs"
)

// openFuzzed opens what may be anything, and closes it if it opens.
func openFuzzed(t *testing.T, cfg Config) {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("Open() = %v, want a refusal that says where", err)
		}
		return
	}
	last := l.mu.view.last()
	if got := uint64(len(all(t, l))); got != last-l.mu.view.base.index {
		t.Errorf("%d entries can be read, want %d", got, last-l.mu.view.base.index)
	}
	err = l.Save(entries(1<<40, last+1, last+2, 1), nil, nil)
	if l.mu.view.hard.commit <= last+1 {
		must(t, err)
	} else if !errors.Is(err, ErrCommitBeyondLog) {
		t.Errorf("Save() that leaves the commit index beyond the log = %v, want %v", err, ErrCommitBeyondLog)
	}
	must(t, l.Close())
}

// FuzzOpen gives Open any bytes as the only segment: as the whole file, behind a
// sound header, or behind one and with all CRCs made right. It opens or refuses,
// with a place, and does not panic; what it opens it can also write.
func FuzzOpen(f *testing.F) {
	body := func(build func(b *batch)) []byte {
		var b batch
		b.reset(0)
		build(&b)
		b.seal(fuzzNonce, headerSize, 1, fuzzHeader(batchHeader).encode(make([]byte, headerSize)))
		return b.buf
	}
	for mode := range uint8(3) {
		f.Add(mode, []byte(magic))
		f.Add(mode, body(func(b *batch) { b.hard(hardState{1, 2, 3}) }))
		f.Add(mode, body(func(b *batch) { b.entry(entry(1, 1, 3)); b.base(entryID{1, 1}) }))
		f.Add(mode, body(func(b *batch) { must(f, b.snapshot(recordInstall, snapshot(1, 9))); b.promise(5) }))
		f.Add(mode, body(func(b *batch) { must(f, b.snapshot(recordCheckpoint, snapshot(1, 0))); b.entry(entry(2, 1, 0)) }))
	}
	f.Fuzz(func(t *testing.T, mode uint8, data []byte) {
		switch mode % 3 {
		case 1:
			data = behindHeader(data)
		case 2:
			data = reseal(behindHeader(data))
		}
		disk := fs.NewMemory()
		disk.SetBytes(segmentName(1), data)
		openFuzzed(t, testConfig(disk))
	})
}

const fuzzNonce = 7

// fuzzHeader is the header of a segment with batches of n bytes.
func fuzzHeader(n int) *header {
	return &header{id: 1, size: headerSize + uint64(n), nonce: fuzzNonce, sealed: headerSize, firstBatch: 1, nextIndex: 1}
}

func behindHeader(body []byte) []byte {
	data := make([]byte, headerSize, headerSize+len(body))
	fuzzHeader(len(body)).encode(data)
	return append(data, body...)
}

// reseal makes marks, numbers, counts and CRCs right, as far as the lengths lead
// somewhere, so that the fuzzer gets to what is behind them.
func reseal(data []byte) []byte {
	chain, number := le.Uint32(data[headerSize-crcSize:]), uint64(1)
	for at := headerSize; len(data)-at >= batchHeader; number++ {
		b := data[at:]
		n := int(le.Uint32(b[recordHeader+16:]))
		if n > len(b)-batchHeader {
			return data
		}
		end, count := batchHeader, uint32(0)
		for end < batchHeader+n {
			left := batchHeader + n - end
			if left < recordHeader {
				return data
			}
			size := recordSize(int(le.Uint32(b[end:])))
			if size > left {
				return data
			}
			end, count = end+size, count+1
		}
		le.PutUint32(b, batchPayload)
		b[4], b[5], b[6], b[7] = byte(recordBatch), 0, 0, 0
		le.PutUint64(b[batchMark:], mark(fuzzNonce, uint64(at)))
		le.PutUint64(b[recordHeader+8:], number)
		le.PutUint32(b[recordHeader+20:], count)
		chain = seal(b[:end], chain)
		at += end
	}
	return data
}

// FuzzDamagedLogIsAPrefixOrRefused overwrites a part of a log with a pattern:
// what opens then is a prefix of what was written.
func FuzzDamagedLogIsAPrefixOrRefused(f *testing.F) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l, err := Open(cfg)
	must(f, err)
	want := entries(1, 1, 60, 120)
	for i := 0; i < len(want); i += 3 {
		must(f, l.Save(want[i:min(i+3, len(want))], nil, nil))
	}
	must(f, l.Close())
	names := segmentNames(f, disk)
	f.Add(uint8(0), uint16(0), uint16(1), []byte{0})
	f.Add(uint8(1), uint16(600), uint16(3), []byte{1, 2, 3, 4})
	f.Add(uint8(2), uint16(520), uint16(100), []byte{0})
	f.Add(uint8(255), uint16(1500), uint16(4000), []byte{0})
	f.Fuzz(func(t *testing.T, file uint8, at, n uint16, junk []byte) {
		name := names[int(file)%len(names)]
		data := disk.Bytes(name)
		for i := 0; i < int(n) && int(at)+i < len(data) && len(junk) > 0; i++ {
			data[int(at)+i] = junk[i%len(junk)]
		}
		damaged := disk.Clone()
		damaged.SetBytes(name, data)
		c := cfg
		c.FS = damaged
		l, err := Open(c)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("Open() = %v, want a refusal that says where", err)
			}
			return
		}
		defer l.Close()
		got := all(t, l)
		if diff := sameEntries(got, want[:min(len(got), len(want))]); diff != nil {
			t.Errorf("not a prefix: %v", diff)
		}
		if last := names[len(names)-1]; name != last && len(got) != len(want) {
			t.Errorf("damage to %s has cost entries %d to %d", name, len(got)+1, len(want))
		}
	})
}

// A length that claims more than the file has costs no memory.
func TestBadLengthAllocatesNothing(t *testing.T) {
	disk := fs.NewMemory()
	cfg := testConfig(disk)
	l := mustOpen(t, cfg)
	at := l.w.tail.end
	must(t, l.Save(entries(1, 1, 2, 10), nil, nil))
	must(t, l.Close())
	name := segmentName(1)
	for _, place := range []int64{at, at + recordHeader + 16, at + batchHeader} {
		data := disk.Bytes(name)
		le.PutUint32(data[place:], 0xfffffff0)
		// The CRC of the batch's own record is right.
		crc := le.Uint32(data[at-crcSize:])
		if place == at+recordHeader+16 {
			seal(data[at:at+batchHeader], crc)
		}
		const rounds = 50
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			clone := disk.Clone()
			clone.SetBytes(name, data)
			c := cfg
			c.FS = clone
			l, err := OpenReadOnly(c)
			must(t, err)
			must(t, l.Close())
		}
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / rounds; got > 64<<10 {
			t.Errorf("length at %d: %d bytes allocated for a file of %d", place, got, len(data))
		}
	}
}
