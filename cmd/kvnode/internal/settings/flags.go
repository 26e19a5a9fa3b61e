package settings

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const configFile = "config-file"

// meta is what decides how the table is used, and so is in no file.
var meta = []setting{{name: configFile, topic: others, usage: "YAML file with settings; flags and environment go before it."}}

// raw holds what a flag was given until Load understands it, so that all that is
// wrong can be reported together.
type raw struct{ text, kind string }

func (r *raw) Set(text string) error { r.text = text; return nil }

func (r *raw) String() string { return r.text }

func (r *raw) Type() string { return r.kind }

// AddFlags gives cmd a flag for each setting.
func AddFlags(cmd *cobra.Command) error {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.AddFlag(&pflag.Flag{Name: configFile, Usage: meta[0].usage, Value: &raw{kind: kindFile}})
	if err := cmd.MarkFlagFilename(configFile, "yaml", "yml"); err != nil {
		return err
	}
	for i := range table {
		s := &table[i]
		f := s.flag()
		fs.AddFlag(f)
		if err := complete(cmd, s, f); err != nil {
			return err
		}
	}
	return nil
}

// flag returns the setting's flag. Those that do nothing are not in the help.
func (s *setting) flag() *pflag.Flag {
	f := &pflag.Flag{Name: s.name, Usage: s.usage, Hidden: !s.honoured()}
	kind := "string"
	if s.honoured() {
		defaults, _ := Load(nil, nil)
		v := s.field(&defaults.Config)
		kind, f.DefValue = v.Type(), v.String()
	}
	if s.now != "" && s.feature == "" {
		f.NoOptDefVal = byName[s.now].flag().NoOptDefVal
	}
	f.Value = &raw{text: f.DefValue, kind: kind}
	if s.bool || kind == kindBool {
		f.NoOptDefVal = "true"
	}
	return f
}

// complete tells the shell what a flag takes.
func complete(cmd *cobra.Command, s *setting, f *pflag.Flag) error {
	kind := f.Value.Type()
	switch {
	case kind == kindDir:
		return cmd.MarkFlagDirname(s.name)
	case kind == kindFile:
		return cmd.MarkFlagFilename(s.name)
	case strings.Contains(kind, "|"):
		return cmd.RegisterFlagCompletionFunc(s.name, cobra.FixedCompletions(strings.Split(kind, "|"), cobra.ShellCompDirectiveNoFileComp))
	default:
		return cmd.RegisterFlagCompletionFunc(s.name, cobra.NoFileCompletions)
	}
}

// Flags returns the flags of the table that were given.
func Flags(fs *pflag.FlagSet) map[string]string {
	given := make(map[string]string)
	fs.Visit(func(f *pflag.Flag) {
		if _, ok := byName[f.Name]; ok || f.Name == configFile {
			given[f.Name] = f.Value.String()
		}
	})
	return given
}
