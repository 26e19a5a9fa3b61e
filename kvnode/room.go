package kvnode

// missing is what is needed, what there is, and what is to be freed.
func missing(free int64, known bool, size int64) []any {
	if !known {
		return []any{"needed_bytes", size}
	}
	return []any{"needed_bytes", size, "free_bytes", free, "missing_bytes", max(size-free, 0)}
}
