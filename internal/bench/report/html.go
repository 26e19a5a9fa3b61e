package report

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// figure is a Plot whose drawing goes into the page as it is.
type figure struct {
	Title string
	SVG   template.HTML
}

// WriteHTML writes one page that needs nothing else.
func (r *Report) WriteHTML(w io.Writer) error {
	plots, err := r.Plots()
	if err != nil {
		return err
	}
	var figures []figure
	for _, p := range plots {
		figures = append(figures, figure{p.Title, template.HTML(p.SVG)}) // drawn by gonum, which escapes its text
	}
	return page.Execute(w, struct {
		Environment [][2]string
		Verdict     error
		Notes       []string
		Tables      []Table
		Plots       []figure
	}{r.Environment.Lines(), r.Verdict(), r.Notes, r.Tables(), figures})
}
