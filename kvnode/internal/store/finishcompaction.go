package store

import "context"

// FinishCompaction frees at once what compactions have made unreachable, instead
// of a little at a time: the next checkpoint then lets go of it, and a
// defragmentation can give the space back. Reads and Apply go on meanwhile.
func (s *Store) FinishCompaction(ctx context.Context) error {
	for s.trim() {
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
