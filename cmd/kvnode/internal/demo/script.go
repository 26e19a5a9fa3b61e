package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// script plays scenes and keeps account of what they claim.
type script struct {
	out  *printer // immutable
	pace float64  // immutable

	scene  string
	claims int
	failed []string // claims that did not hold, and scenes that could not be played
}

// scene is one act: its title, a sentence that says why it matters, and the function that
// performs it.
type scene struct {
	title, why string
	play       func(ctx context.Context) error
}

// ErrStory is matched by the error of a story that has not succeeded.
var ErrStory = errors.New("not everything that the story claims held")

// readingTime is how long the reader gets for a scene's introduction.
const readingTime = 3000 * time.Millisecond

// run plays all scenes, one after the other. After a scene that could not be
// played the rest is left out: each builds on those before.
func (s *script) run(ctx context.Context, scenes []scene) error {
	for i, sc := range scenes {
		s.begin(i+1, sc)
		before := s.claims
		err := s.pause(ctx, readingTime)
		if err == nil {
			err = sc.play(ctx)
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx) // what failed then failed because of it
		}
		if err == nil && s.claims == before {
			err = errors.New("it has claimed nothing, so it has shown nothing")
		}
		if err != nil {
			s.claimf(err, "scene %d, %q, was played to its end", i+1, sc.title)
			break
		}
	}
	return s.end(ctx)
}

func (s *script) begin(number int, sc scene) {
	s.scene = sc.title
	s.out.linef("")
	s.out.linef("%s", s.out.paint(bold, fmt.Sprintf("%d. %s", number, sc.title)))
	s.out.linef("%s", indent("   ", sc.why))
}

// claimf prints a claim with a mark that says whether the check of it, which
// returned err, has passed.
func (s *script) claimf(err error, format string, args ...any) {
	s.claims++
	text := fmt.Sprintf(format, args...)
	if err == nil {
		s.out.linef("   %s %s", s.out.paint(green, "✓"), text)
		return
	}
	text = fmt.Sprintf("%s: %v", text, err) // which may be of several lines
	s.failed = append(s.failed, fmt.Sprintf("%s: %s", s.scene, text))
	s.out.linef("   %s %s", s.out.paint(red, "✗"), strings.TrimSpace(indent("     ", text)))
}

// notef prints what informs and was not checked.
func (s *script) notef(format string, args ...any) {
	s.out.linef("   %s", s.out.paint(faint, "· "+fmt.Sprintf(format, args...)))
}

// pause leaves time to read. If the story ends early, pause returns the reason.
func (s *script) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(time.Duration(float64(d) * s.pace)):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// end sums up.
func (s *script) end(ctx context.Context) error {
	s.out.linef("")
	if len(s.failed) == 0 {
		s.out.linef("%s", s.out.paint(green, fmt.Sprintf("All %d claims were checked, and held.", s.claims)))
		return nil
	}
	s.out.linef("%s", s.out.paint(red, fmt.Sprintf("%d of %d claims did not hold:", len(s.failed), s.claims)))
	for _, f := range s.failed {
		s.out.linef("   ✗ %s", strings.TrimSpace(indent("     ", f)))
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return errors.New("interrupted")
	}
	return ErrStory
}
