package autocompact

// window holds the last size numbers.
type window struct {
	size  int
	all   []int64
	first int
}

// add forgets the oldest number once the window is full.
func (w *window) add(n int64) {
	if len(w.all) < w.size {
		w.all = append(w.all, n)
		return
	}
	w.all[w.first] = n
	w.first = (w.first + 1) % w.size
}

func (w *window) oldest() int64 { return w.all[w.first] }
