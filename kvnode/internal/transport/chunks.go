package transport

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
)

// The state of a snapshot is sent as
//
//	size      8 bytes
//	chunks    4 bytes of length, 4 bytes of CRC-32C, data; lengths add up to size
//	end       a chunk of length 0, then 32 bytes of SHA-256
//
// Both checksums cover the size and all data so far. So they find chunks that are
// missing, repeated or out of order.
const (
	maxChunk  = 64 << 10
	chunkHead = 8
)

// sums holds the running checksums of a state.
type sums struct {
	crc uint32
	sha hash.Hash
}

func newSums(size int64) *sums {
	s := &sums{sha: sha256.New()}
	s.add(binary.BigEndian.AppendUint64(nil, uint64(size)))
	return s
}

func (s *sums) add(b []byte) {
	s.crc = crc32.Update(s.crc, castagnoli, b)
	s.sha.Write(b)
}

// chunkWriter is the sender's half. It writes each chunk with one call of Write.
type chunkWriter struct {
	w    io.Writer
	size int64 // sent to the receiver by begin
	sent int64
	sums *sums
	buf  []byte
}

func newChunkWriter(w io.Writer, size int64) *chunkWriter {
	return &chunkWriter{w: w, size: size, sums: newSums(size)}
}

func (w *chunkWriter) begin() error {
	_, err := w.w.Write(binary.BigEndian.AppendUint64(nil, uint64(w.size)))
	return err
}

// Write implements io.Writer.
func (w *chunkWriter) Write(p []byte) (n int, err error) {
	if w.sent+int64(len(p)) > w.size {
		return 0, fmt.Errorf("state is longer than the %d bytes it claims", w.size)
	}
	for len(p) > 0 {
		part := p[:min(len(p), maxChunk)]
		w.sums.add(part)
		w.buf = binary.BigEndian.AppendUint32(w.buf[:0], uint32(len(part)))
		w.buf = binary.BigEndian.AppendUint32(w.buf, w.sums.crc)
		w.buf = append(w.buf, part...)
		if _, err := w.w.Write(w.buf); err != nil {
			return n, err
		}
		n, p = n+len(part), p[len(part):]
		w.sent += int64(len(part))
	}
	return n, nil
}

// end writes the end of the state. It fails if the state is not complete.
func (w *chunkWriter) end() error {
	if w.sent != w.size {
		return fmt.Errorf("state ended after %d of the %d bytes it claims", w.sent, w.size)
	}
	b := binary.BigEndian.AppendUint32(nil, 0)
	b = binary.BigEndian.AppendUint32(b, w.sums.crc)
	_, err := w.w.Write(w.sums.sha.Sum(b))
	return err
}

// chunkReader is the receiver's half. Read returns a chunk only after its checksum was compared, and the last chunk
// only after the checksums of the whole state were compared, too.
type chunkReader struct {
	r    io.Reader
	left int64 // the number of bytes that were not read from r yet
	sums *sums
	buf  []byte
	data []byte // the part of buf that Read has not returned yet
	err  error  // returned after data, by each Read; io.EOF once all checksums were right
}

// newChunkReader reads the size, and returns it.
func newChunkReader(r io.Reader) (*chunkReader, int64, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return nil, 0, truncated(err)
	}
	size := int64(binary.BigEndian.Uint64(b[:]))
	if size < 0 {
		return nil, 0, fmt.Errorf("snapshot is damaged: size %d of the state exceeds the limit of %d", uint64(size), int64(math.MaxInt64))
	}
	return &chunkReader{r: r, left: size, sums: newSums(size)}, size, nil
}

// Read implements io.Reader.
func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 && r.err == nil {
		r.err = r.next()
	}
	if len(r.data) > 0 {
		n := copy(p, r.data)
		r.data = r.data[n:]
		return n, nil
	}
	return 0, r.err
}

// next reads one chunk, and the end of the state after the last one.
func (r *chunkReader) next() error {
	var data []byte
	if r.left > 0 {
		size, sum, err := r.head()
		if err != nil {
			return err
		}
		if size == 0 || size > maxChunk || int64(size) > r.left {
			return fmt.Errorf("snapshot is damaged: chunk of %d bytes, want 1 to %d", size, min(maxChunk, r.left))
		}
		if r.buf, err = readN(r.r, r.buf[:0], int(size)); err != nil {
			return truncated(err)
		}
		data = r.buf
		if r.sums.add(data); r.sums.crc != sum {
			return fmt.Errorf("snapshot is damaged: checksum %08x with %d bytes to go, want %08x", r.sums.crc, r.left, sum)
		}
		r.left -= int64(size)
	}
	if r.left > 0 {
		r.data = data
		return nil
	}
	if err := r.end(); err != nil {
		return err
	}
	r.data = data
	return io.EOF
}

// end reads the end of the state and compares its checksums.
func (r *chunkReader) end() error {
	size, sum, err := r.head()
	if err != nil {
		return err
	}
	if size != 0 || sum != r.sums.crc {
		return fmt.Errorf("snapshot is damaged: ends with a chunk of %d bytes, checksum %08x, want 0 bytes, %08x", size, sum, r.sums.crc)
	}
	var sha [sha256.Size]byte
	if _, err := io.ReadFull(r.r, sha[:]); err != nil {
		return truncated(err)
	}
	if got := r.sums.sha.Sum(nil); !bytes.Equal(got, sha[:]) {
		return fmt.Errorf("snapshot is damaged: SHA-256 %x, want %x", got, sha)
	}
	return nil
}

func (r *chunkReader) head() (size, sum uint32, err error) {
	var b [chunkHead]byte
	if _, err := io.ReadFull(r.r, b[:]); err != nil {
		return 0, 0, truncated(err)
	}
	return binary.BigEndian.Uint32(b[:]), binary.BigEndian.Uint32(b[4:]), nil
}

// finished reports whether the whole state was read and is undamaged.
func (r *chunkReader) finished() bool {
	if r.left == 0 && len(r.data) == 0 && r.err == nil {
		r.err = r.next() // an empty state needs no call of Read
	}
	return len(r.data) == 0 && errors.Is(r.err, io.EOF)
}

// truncated explains an error of the connection within a snapshot.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("snapshot is incomplete: %w", io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("read snapshot: %w", err)
}
