package demo

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

var errFalse = errors.New("it is 3, not 4")

// play runs scenes without pauses and returns what was printed.
func playScenes(ctx context.Context, scenes func(*script) []scene) (string, error) {
	var out bytes.Buffer
	s := &script{out: newPrinter(&out)}
	err := s.run(ctx, scenes(s))
	return out.String(), err
}

func claiming(s *script, title string, err error) scene {
	return scene{title, "Because it matters,\nas it does.", func(context.Context) error {
		s.notef("it took a while")
		s.claimf(err, "%s is right", title)
		return nil
	}}
}

func TestStoryWithoutAFaultSucceeds(t *testing.T) {
	got, err := playScenes(t.Context(), func(s *script) []scene {
		return []scene{claiming(s, "First", nil), claiming(s, "Second", nil)}
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `
1. First
   Because it matters,
   as it does.
   · it took a while
   ✓ First is right

2. Second
   Because it matters,
   as it does.
   · it took a while
   ✓ Second is right

All 2 claims were checked, and held.
`
	if got != want {
		t.Errorf("printed:\n%s\nwant:\n%s", got, want)
	}
}

// A claim that does not hold does not stop the story, and is not forgotten.
func TestFalseClaimFailsTheStoryAndIsRepeated(t *testing.T) {
	got, err := playScenes(t.Context(), func(s *script) []scene {
		return []scene{claiming(s, "First", errFalse), claiming(s, "Second", nil)}
	})
	if !errors.Is(err, ErrStory) {
		t.Errorf("run: error %v, want ErrStory", err)
	}
	_, end, found := strings.Cut(got, "1 of 2 claims did not hold:\n")
	if !found || end != "   ✗ First: First is right: it is 3, not 4\n" {
		t.Errorf("the end is not the false claim:\n%s", got)
	}
	for _, line := range []string{"   ✗ First is right: it is 3, not 4\n", "   ✓ Second is right\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("%q is missing in:\n%s", line, got)
		}
	}
	if strings.Contains(got, "All 2") {
		t.Errorf("success was printed:\n%s", got)
	}
}

func TestSceneThatCannotBePlayedFailsTheStoryAndEndsIt(t *testing.T) {
	got, err := playScenes(t.Context(), func(s *script) []scene {
		broken := scene{"Broken", "Why.", func(context.Context) error { return errors.New("n2 ended\nits log") }}
		return []scene{broken, claiming(s, "Second", nil)}
	})
	if !errors.Is(err, ErrStory) {
		t.Errorf("run: error %v, want ErrStory", err)
	}
	if strings.Contains(got, "Second") {
		t.Errorf("a scene was played without the one before:\n%s", got)
	}
	if want := "   ✗ Broken: scene 1, \"Broken\", was played to its end: n2 ended\n     its log\n"; !strings.HasSuffix(got, want) {
		t.Errorf("printed:\n%s\nwant the end:\n%s", got, want)
	}
}

// Otherwise a scene that lost its checks would pass for ever.
func TestSceneWithoutAClaimFailsTheStory(t *testing.T) {
	_, err := playScenes(t.Context(), func(*script) []scene {
		return []scene{{"Silent", "Why.", func(context.Context) error { return nil }}}
	})
	if !errors.Is(err, ErrStory) {
		t.Errorf("run: error %v, want ErrStory", err)
	}
}

func TestInterruptedStoryDoesNotSucceed(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	got, err := playScenes(ctx, func(s *script) []scene {
		first := claiming(s, "First", nil)
		then := first.play
		first.play = func(ctx context.Context) error { cancel(); return then(ctx) }
		return []scene{first, claiming(s, "Second", nil)}
	})
	if err == nil || errors.Is(err, ErrStory) {
		t.Errorf("run: error %v, want one that says it was interrupted", err)
	}
	if strings.Contains(got, "Second") {
		t.Errorf("it went on:\n%s", got)
	}
}

// What a scene trips over when a member dies is noise; the death is the reason.
func TestStorySaysWhyItEndedEarly(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	got, err := playScenes(ctx, func(*script) []scene {
		return []scene{{"First", "Why.", func(ctx context.Context) error {
			cancel(errors.New("n3 ended by itself"))
			return ctx.Err()
		}}}
	})
	if !errors.Is(err, ErrStory) || !strings.Contains(got, "n3 ended by itself") {
		t.Errorf("error %v and\n%s\nwant ErrStory and the reason", err, got)
	}
}
