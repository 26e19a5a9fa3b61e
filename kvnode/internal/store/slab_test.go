package store

import (
	"bytes"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// Room is handed out once until the slab is given back, however much that is.
func TestSlabHandsOutRoomOnce(t *testing.T) {
	s := new(slab)
	for range 2 {
		var all [][]byte
		for n := range 5000 {
			size := n * 7 % 3000
			if n%1000 == 0 {
				size = 2 * chunkSize
			}
			room := s.room(size)
			if len(room) != 0 || cap(room) != size {
				t.Fatalf("room(%d) has length %d and capacity %d, want 0 and %[1]d", size, len(room), cap(room))
			}
			room = room[:size]
			for i := range room {
				room[i] = byte(n)
			}
			all = append(all, room)
		}
		for n, room := range all {
			if bytes.Count(room, []byte{byte(n)}) != len(room) {
				t.Fatalf("room %d of %d bytes was handed out again", n, len(room))
			}
		}
		s.release()
	}
}

// late is a backend that writes what it was given when the change is made, as bbolt does. In
// between another store makes a checkpoint.
type late struct {
	Backend
	t       *testing.T
	records int
}

func (l *late) View() (Image, error) { return emptyImage{}, nil }
func (l *late) Settle() error        { return nil }
func (l *late) Close() error         { return nil }
func (l *late) Size() (int64, int64) { return 0, 0 }

func (l *late) Update(fn func(tx Tx) error) error {
	tx := &lateTx{}
	if err := fn(tx); err != nil {
		return err
	}
	other := takeSlab()
	defer other.release()
	for range 100 {
		room := other.room(1000)[:1000]
		for i := range room {
			room[i] = 0xff
		}
	}
	for _, r := range tx.records {
		if err := checkRecord(r[0], r[1]); err != nil {
			l.t.Errorf("a record before it is written: %v", err)
		}
		l.records++
	}
	return nil
}

type lateTx struct{ records [][2][]byte }

func (t *lateTx) Meta() []byte              { return nil }
func (t *lateTx) SetMeta([]byte) error      { return nil }
func (t *lateTx) Record([]byte) []byte      { return nil }
func (t *lateTx) DeleteRecord([]byte) error { return nil }
func (t *lateTx) SetRecord(key, value []byte) error {
	t.records = append(t.records, [2][]byte{key, value})
	return nil
}

type emptyImage struct{ Image }

func (emptyImage) Meta() []byte                                { return nil }
func (emptyImage) Records(func(key, value []byte) error) error { return nil }
func (emptyImage) Size() int64                                 { return 0 }
func (emptyImage) Close() error                                { return nil }

// Records stay as they are until the backend has written them.
func TestRecordsLastUntilTheCommit(t *testing.T) {
	b := &late{t: t}
	c := &cut{conf: &raftpb.ConfState{}}
	for i := range 100 {
		v := &Version{of: newChain([]byte("key")), mod: int64(i + 2), create: 2, number: int64(i + 1)}
		v.setValue(make([]byte, 100))
		c.versions = append(c.versions, v)
	}
	s, err := Open(Config{Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	st := s.state.Load()
	for range 2 {
		st.cuts = append(st.cuts, c)
		if err := s.commit(st, c); err != nil {
			t.Fatal(err)
		}
	}
	if b.records != 200 {
		t.Errorf("%d records were written, want 200", b.records)
	}
}
