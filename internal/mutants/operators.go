package main

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// change is one replacement of the text between two positions.
type change struct {
	from, to token.Pos
	text     string
}

// operators make mistakes mechanically. A result that does not compile does not count.
var operators = []struct {
	name  string
	apply func(n ast.Node, w writer) []change
}{
	{"negate", negate},
	{"boundary", boundary},
	{"one unit", unit},
	{"wrong sign", sign},
	{"and/or", andOr},
	{"drop condition", dropCondition},
	{"drop early exit", dropExit},
	{"drop call", dropCall},
	{"drop assignment", dropAssignment},
	{"swap", swap},
	{"stale copy", stale},
	{"wrong field", field},
	{"wrong extreme", extreme},
	{"wrong result", result},
}

func replaced(n ast.Node, text string) []change { return []change{{n.Pos(), n.End(), text}} }

// operatorOf replaces the operator of a binary expression, if there is one to put in
// its place.
func operatorOf(n ast.Node, others map[token.Token]token.Token) []change {
	b, ok := n.(*ast.BinaryExpr)
	if !ok || others[b.Op] == token.ILLEGAL {
		return nil
	}
	return []change{{b.OpPos, b.OpPos + token.Pos(len(b.Op.String())), others[b.Op].String()}}
}

func negate(n ast.Node, w writer) []change {
	if f, ok := n.(*ast.IfStmt); ok {
		if _, compares := f.Cond.(*ast.BinaryExpr); !compares {
			return replaced(f.Cond, "!("+w.of(f.Cond)+")")
		}
	}
	return operatorOf(n, map[token.Token]token.Token{
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ,
		token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
	})
}

// boundary moves a comparison by the one value at its edge.
func boundary(n ast.Node, w writer) []change {
	if c, ok := n.(*ast.CallExpr); ok && len(c.Args) == 1 {
		other := map[string]string{"Before": "After", "After": "Before"}
		if s, ok := c.Fun.(*ast.SelectorExpr); ok && other[s.Sel.Name] != "" {
			return replaced(n, "!"+w.of(s.X)+"."+other[s.Sel.Name]+"("+w.of(c.Args[0])+")")
		}
	}
	return operatorOf(n, map[token.Token]token.Token{
		token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	})
}

// unit makes numbers, instants, durations and terms one too large or too small.
func unit(n ast.Node, w writer) []change {
	switch n := n.(type) {
	case *ast.BasicLit:
		if v, err := strconv.ParseUint(n.Value, 0, 62); err == nil && n.Kind == token.INT {
			return append(replaced(n, strconv.FormatUint(v+1, 10)), replaced(n, strconv.FormatInt(int64(v)-1, 10))...)
		}
	case *ast.CallExpr:
		switch s, ok := n.Fun.(*ast.SelectorExpr); {
		case ok && len(n.Args) == 1 && (s.Sel.Name == "Add" || s.Sel.Name == "Sub"), ok && s.Sel.Name == "GetTerm":
			return append(replaced(n, "("+w.of(n)+" + 1)"), replaced(n, "("+w.of(n)+" - 1)")...)
		}
	}
	return nil
}

func sign(n ast.Node, _ writer) []change {
	return operatorOf(n, map[token.Token]token.Token{
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	})
}

func andOr(n ast.Node, _ writer) []change {
	return operatorOf(n, map[token.Token]token.Token{token.LAND: token.LOR, token.LOR: token.LAND})
}

// dropCondition removes one of two conditions.
func dropCondition(n ast.Node, w writer) []change {
	b, ok := n.(*ast.BinaryExpr)
	if !ok || b.Op != token.LAND && b.Op != token.LOR {
		return nil
	}
	return append(replaced(n, w.of(b.X)), replaced(n, w.of(b.Y))...)
}

// dropExit disables an early return, break or continue.
func dropExit(n ast.Node, w writer) []change {
	switch n := n.(type) {
	case *ast.IfStmt:
		if n.Else == nil && exits(n.Body.List) {
			return replaced(n.Cond, "false && ("+w.of(n.Cond)+")")
		}
	case *ast.CaseClause:
		if len(n.List) == 1 && exits(n.Body) {
			return replaced(n.List[0], "false && ("+w.of(n.List[0])+")")
		}
	}
	return nil
}

func exits(body []ast.Stmt) bool {
	if len(body) == 0 {
		return false
	}
	switch body[len(body)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

func isCall(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.DeferStmt:
		return true
	case *ast.ExprStmt:
		c, ok := s.X.(*ast.CallExpr)
		return ok && !onlyReports(c)
	}
	return false
}

func isAssignment(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.IncDecStmt:
		return true
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	}
	return false
}

func dropCall(n ast.Node, _ writer) []change {
	if s, ok := n.(ast.Stmt); ok && isCall(s) {
		return replaced(n, "")
	}
	return nil
}

func dropAssignment(n ast.Node, w writer) []change {
	switch s := n.(type) {
	case *ast.IncDecStmt:
		return replaced(n, "")
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE || len(s.Lhs) != len(s.Rhs) {
			return nil
		}
		var blank strings.Builder
		for i := range s.Rhs {
			if i > 0 {
				blank.WriteString("; ")
			}
			blank.WriteString("_ = " + w.of(s.Rhs[i])) // what it reads stays used
		}
		return replaced(n, blank.String())
	}
	return nil
}

// pairs returns adjacent statements in the other order, where fits says so.
func pairs(n ast.Node, w writer, fits func(a, b ast.Stmt) bool) (found []change) {
	var body []ast.Stmt
	switch n := n.(type) {
	case *ast.BlockStmt:
		body = n.List
	case *ast.CaseClause:
		body = n.Body
	}
	for i := range max(len(body)-1, 0) {
		if a, b := body[i], body[i+1]; fits(a, b) {
			found = append(found, change{a.Pos(), b.End(), w.of(b) + w.text(a.End(), b.Pos()) + w.of(a)})
		}
	}
	return found
}

// swap exchanges two calls, or a call and an assignment.
func swap(n ast.Node, w writer) []change {
	return pairs(n, w, func(a, b ast.Stmt) bool {
		return isCall(a) && (isCall(b) || isAssignment(b)) || isAssignment(a) && isCall(b)
	})
}

// stale reads a value before the statement that it was read after.
func stale(n ast.Node, w writer) []change {
	return pairs(n, w, func(a, b ast.Stmt) bool {
		read, ok := b.(*ast.AssignStmt)
		_, from := a.(*ast.AssignStmt)
		_, block := a.(*ast.IfStmt)
		return ok && (read.Tok == token.DEFINE && (isCall(a) || from || block) || isAssignment(a) && isAssignment(b))
	})
}

// siblings are fields and methods that are easily confused: the
// other side's clock, the other instant, the other half, the other term.
var siblings = map[string]string{
	"Sent": "Reading", "Reading": "Sent", "sent": "received", "received": "sent",
	"End": "Usable", "Usable": "End", "From": "End", "until": "sent",
	"owed": "hold", "after": "probed", "probed": "after", "promised": "last.at",
	"To": "From", "GetTo": "GetFrom", "GetFrom": "GetTo",
	"GetVoters": "GetVotersOutgoing", "GetVotersOutgoing": "GetVoters",
	"GetTerm": "GetLogTerm", "Committed": "Applied", "Applied": "Committed",
	"Duration": "MaxClockSkew", "MaxClockSkew": "Duration", "Lock": "RLock", "Owes": "Bound", "Bound": "Owes",
}

func field(n ast.Node, _ writer) []change {
	if s, ok := n.(*ast.SelectorExpr); ok && siblings[s.Sel.Name] != "" && spelled(s) != "time.Duration" {
		return replaced(s.Sel, siblings[s.Sel.Name])
	}
	return nil
}

func extreme(n ast.Node, _ writer) []change {
	other := map[string]string{"max": "min", "min": "max"}
	if c, ok := n.(*ast.CallExpr); ok && other[spelled(c.Fun)] != "" {
		return replaced(c.Fun, other[spelled(c.Fun)])
	}
	return nil
}

// result returns, assigns or passes the other bool.
func result(n ast.Node, _ writer) []change {
	other := map[string]string{"true": "false", "false": "true"}
	if i, ok := n.(*ast.Ident); ok && other[i.Name] != "" {
		return replaced(i, other[i.Name])
	}
	return nil
}
