package provider

import (
	"path/filepath"
	"regexp"
	"strings"
)

// launchers fetch a package and run it. The value lists the flags whose next
// argument names the package; other flags are passed over.
var launchers = map[string][]string{
	"npx": {"-p", "--package"}, "bunx": {"-p", "--package"}, "pnpx": {"--package"}, "uvx": {"--from"},
}

// subLaunchers are launchers as a subcommand: "npm exec", "pnpm dlx", "pipx run".
var subLaunchers = map[string]string{"npm": "exec", "pnpm": "dlx", "yarn": "dlx", "pipx": "run", "bun": "x"}

// valueFlags take a value that is not the package.
var valueFlags = map[string]bool{"--python": true, "--with": true, "-c": true, "--call": true, "--registry": true, "--cache": true}

var exactVersion = regexp.MustCompile(`^v?\d+\.\d+\.\d+(?:[-+.][0-9A-Za-z.+-]+)?$`)

// packageOf recognises the package that a launcher would fetch, as it is written.
func packageOf(command string, args []string) (name string, pinned bool) {
	base := strings.TrimSuffix(filepath.Base(command), ".cmd")
	flags, ok := launchers[base]
	if !ok {
		sub, has := subLaunchers[base]
		if !has || len(args) == 0 || args[0] != sub {
			return "", false
		}
		flags, args = []string{"-p", "--package", "--spec"}, args[1:]
	}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !strings.HasPrefix(arg, "-") {
			return arg, pinnedTo(arg)
		}
		if arg == "--" {
			continue
		}
		for _, f := range flags {
			if v, found := strings.CutPrefix(arg, f+"="); found {
				return v, pinnedTo(v)
			}
			if arg == f && i+1 < len(args) {
				return args[i+1], pinnedTo(args[i+1])
			}
		}
		if valueFlags[arg] {
			i++
		}
	}
	return "", false
}

// pinnedTo reports whether a package is named with one exact version.
func pinnedTo(name string) bool {
	if _, v, ok := strings.Cut(name, "=="); ok {
		return exactVersion.MatchString(v)
	}
	at := strings.LastIndexByte(name, '@')
	return at > 0 && exactVersion.MatchString(name[at+1:])
}
