package shell

import (
	"regexp"
	"slices"
	"strings"
)

// program looks at a program by its name, and at what it would run in turn.
func (s *scan) program(program string, args []arg, depth int) {
	name := Base(program)
	if known(name) && strings.Contains(wordOf(program), "/") {
		s.wrapped = true // the word that would be remembered is a program of the system, this one only has its name
	}
	switch {
	case alwaysDestroys(name):
		if !only(args, "--help", "--version", "-whatif") {
			s.destroys(wordOf(program))
		}
	case isShell(name):
		s.shell(name, args, depth)
	case slices.Contains([]string{"eval", "trap", "alias", "source", "."}, name):
		s.code(name, args, depth)
	case isInterpreter(name):
		s.interpreter(program, name, args)
	case slices.Contains([]string{"cmd", "powershell", "pwsh", "vim", "vi", "nvim", "ex", "ed", "emacs", "expect", "gdb", "at", "batch", "osascript", "newgrp",
		"foreach-object", "where-object", "invoke-expression", "invoke-command", "iex", "icm", "start-process"}, name):
		s.opaque = true
		s.inside(args, depth)
	case isWrapper(name, args):
		s.wrapper(name, args, depth)
	case name == "find" || name == "fd" || name == "fdfind":
		s.find(name, args, depth)
	case name == "git":
		s.git(args, depth)
	case remoteTool(name):
		s.remote(name, args, depth)
	default:
		s.sometimes(program, name, args)
	}
}

// known names the programs that are remembered by their name alone.
func known(name string) bool {
	return isShell(name) || name == "find" || name == "fd" || name == "fdfind" || name == "git" || remoteTool(name)
}

// alwaysDestroys names the programs whose purpose is to delete, overwrite or stop.
func alwaysDestroys(name string) bool {
	return strings.HasPrefix(name, "mkfs") || strings.HasPrefix(name, "remove-") || strings.HasPrefix(name, "clear-") ||
		slices.Contains([]string{
			"rm", "rmdir", "unlink", "shred", "wipe", "srm", "truncate", "rimraf", "del", "erase", "rd", "deltree", "format", "ri",
			"wipefs", "mkswap", "sgdisk", "sfdisk", "parted", "blkdiscard", "lvremove", "vgremove", "pvremove", "zpool", "zfs", "cryptsetup",
			"shutdown", "reboot", "halt", "poweroff", "init", "telinit", "diskpart", "trash", "dropdb", "dropuser", "userdel", "groupdel",
			"killall", "pkill", "stop-process", "stop-computer", "restart-computer", "cipher", "vssadmin",
		}, name)
}

func isShell(name string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "csh", "tcsh"}, name)
}

// shell looks at the code that a shell is given: after -c, or from standard input, which nobody can know. A script on
// disk is not read.
func (s *scan) shell(name string, args []arg, depth int) {
	s.wrapped = true
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case !a.literal || a.pattern:
			s.opaque = true
			return
		case a.text == "-o" || a.text == "+o" || a.text == "-O" || a.text == "+O" || a.text == "--rcfile" || a.text == "--init-file":
			i++
		case a.text == "--" || strings.HasPrefix(a.text, "--"):
		case strings.HasPrefix(a.text, "-") && strings.Contains(a.text, "c"):
			if i+1 >= len(args) || !args[i+1].literal || args[i+1].pattern {
				s.opaque = true
				return
			}
			s.source(args[i+1].text, depth+1)
			return
		case a.text == "-s" || a.text == "-" || strings.HasPrefix(a.text, "-s"), strings.HasPrefix(a.text, "/dev/"), strings.HasPrefix(a.text, "/proc/"):
			s.opaque = true
			return
		case strings.HasPrefix(a.text, "-") || strings.HasPrefix(a.text, "+"):
		default:
			s.plain(name + " " + a.text)
			return
		}
	}
	s.opaque = true
}

// code looks at the shell's own words that take code.
func (s *scan) code(name string, args []arg, depth int) {
	s.wrapped = true
	s.neutral = append(s.neutral, name)
	for _, a := range args {
		if !a.literal || a.pattern {
			s.opaque = true
			return
		}
	}
	switch name {
	case "eval":
		texts := make([]string, len(args))
		for i, a := range args {
			texts[i] = a.text
		}
		s.source(strings.Join(texts, " "), depth+1)
	case "trap":
		if len(args) > 1 && args[0].text != "-" && args[0].text != "" && !strings.HasPrefix(args[0].text, "-") {
			s.source(args[0].text, depth+1)
		}
	case "alias":
		for _, a := range args {
			if _, code, ok := strings.Cut(a.text, "="); ok {
				s.source(code, depth+1)
			}
		}
	default: // a script on disk is not read; one that comes through a device can't be known
		if len(args) == 0 || strings.HasPrefix(args[0].text, "/dev/") || strings.HasPrefix(args[0].text, "/proc/") {
			s.opaque = true
		}
	}
}

func isInterpreter(name string) bool {
	return slices.ContainsFunc([]string{"python", "perl", "ruby", "node", "nodejs", "php", "lua", "deno", "bun", "tclsh", "rscript", "ghci", "irb", "julia"}, func(p string) bool {
		return strings.TrimRight(name, "0123456789.") == p
	})
}

// interpreter runs a script on disk, which is not read, or code that is: from a flag or standard input. That is opaque.
func (s *scan) interpreter(program, name string, args []arg) {
	if only(args, "--version", "-V", "-v", "--help", "-h") && len(args) > 0 {
		s.plain(wordOf(program))
		return
	}
	for i, a := range args {
		switch {
		case !a.literal || a.pattern:
			s.opaque = true
			s.words = append(s.words, name)
			return
		case a.text == "-m" && i+1 < len(args) && args[i+1].literal:
			s.plain(wordOf(program) + " -m " + args[i+1].text)
			return
		case !strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, "/dev/") && !slices.Contains([]string{"eval", "repl"}, a.text):
			word := wordOf(program) + " " + a.text
			if i == 0 {
				s.plain(word)
				return
			}
			s.opaque = true // an option may have taken this word as its code
			s.words = append(s.words, name)
			return
		}
	}
	s.opaque = true
	s.words = append(s.words, name)
}

// sometimes looks at programs that destroy with some of their options only.
func (s *scan) sometimes(program, name string, args []arg) {
	word := wordOf(program)
	switch name {
	case "dd":
		s.when(anyPrefix(args, "of="), word, args)
	case "tee":
		s.when(!flag(args, 'a', "--append") && !only(args, "/dev/null", "/dev/stderr"), word, args)
	case "chmod", "chown", "chgrp":
		if flag(args, 'R', "--recursive") {
			word += " -R"
			s.destroys(word)
			return
		}
		s.when(false, word, args)
	case "crontab":
		s.when(!only(args, "-l") || len(args) == 0, word, args)
	case "fdisk":
		s.when(!flag(args, 'l', "--list"), word, args)
	case "rsync":
		s.when(anyPrefix(args, "--del", "--remove-s", "--rsh", "-e"), word+" --delete", args)
	case "curl", "wget", "http", "xh":
		s.request(word, args)
	case "mongosh", "mongo", "mongoexport":
		s.when(matches(args, regexp.MustCompile(`(?i)drop|delete|remove|update|insert|replace|shutdown|load\(|^--eval`)), word, args)
	case "hash", "enable", "mapfile", "readarray", "complete", "bind":
		s.when(len(args) > 0 && anyPrefix(args, "-p", "-f", "-C", "-F", "-x"), word, args)
	case "sqlite3", "psql", "mysql", "mariadb", "redis-cli", "sqlcmd", "bq", "clickhouse-client", "duckdb":
		s.when(matches(args, statement()), word, args)
	case "awk", "gawk", "mawk", "nawk":
		s.when(matches(args, regexp.MustCompile(`system|\||>|getline|@load|@include`)), word, args)
	case "sed", "gsed":
		s.when(matches(args, regexp.MustCompile(`(^|[^a-zA-Z\\])[0-9$]*[ew]( |$)|/[gpiImM0-9]*[ew]`)), word, args)
	case "tar", "bsdtar", "zip", "cpio":
		s.when(anyPrefix(args, "--checkpoint-action", "--to-command", "--use-compress", "--remove-files", "-I", "--info-script", "--new-volume", "--unzip-command", "-TT", "-m"), word, args)
	case "systemctl", "service", "launchctl":
		s.when(!only(args, "status", "list-units", "is-active", "show", "cat", "--no-pager") || len(args) == 0, word, args)
	case "cd", "echo", "true", "false", ":", "test", "[", "printf", "pwd", "set", "unset", "shift", "exit", "return", "read", "wait", "break", "continue":
		s.neutral = append(s.neutral, name)
	default:
		s.plain(phrase(word, name, args))
	}
}

// when files a word under what destroys or what does not. Where an argument can't be read, the answer is not known.
func (s *scan) when(destroys bool, word string, args []arg) {
	switch {
	case destroys:
		s.destroys(word)
	case !allLiteral(args):
		s.opaque = true
		s.words = append(s.words, word)
	default:
		s.plain(word)
	}
}

func statement() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(delete|drop|truncate|update|alter|replace|insert|grant|revoke|flushall|flushdb|del|remove|deleteone|deletemany|copy|shell|system)\b|\\!`)
}

// request finds HTTP's DELETE.
func (s *scan) request(word string, args []arg) {
	destroys := matches(args, regexp.MustCompile(`(?i)^(-X|--request=|--method=)?delete$`))
	if destroys {
		s.destroys(word + " DELETE")
		return
	}
	s.plain(word)
}

// phrase is the word that stands for a command: with its sub-command where the program has many.
func phrase(word, name string, args []arg) string {
	if !slices.Contains([]string{"npm", "pnpm", "yarn", "bun", "cargo", "go", "pip", "pip3", "uv", "poetry", "apt", "apt-get", "brew", "dnf", "make", "just",
		"gradle", "mvn", "dotnet", "composer", "bundle", "rails", "mix", "conda", "flutter", "swift", "nix", "snap", "pacman", "apk"}, name) {
		return word
	}
	for _, a := range args {
		if !a.literal || a.pattern {
			return word + " …"
		}
		if !strings.HasPrefix(a.text, "-") && !strings.Contains(a.text, "=") {
			word += " " + a.text
			if a.text == "run" || a.text == "tool" {
				continue
			}
			break
		}
	}
	return word
}

func allLiteral(args []arg) bool {
	return !slices.ContainsFunc(args, func(a arg) bool { return !a.literal })
}

// only reports whether there is nothing but these arguments.
func only(args []arg, texts ...string) bool {
	return len(args) > 0 && !slices.ContainsFunc(args, func(a arg) bool {
		return !a.literal || !slices.Contains(texts, strings.ToLower(a.text)) && !slices.Contains(texts, a.text)
	})
}

func anyPrefix(args []arg, prefixes ...string) bool {
	return slices.ContainsFunc(args, func(a arg) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(a.text, p) })
	})
}

func matches(args []arg, re *regexp.Regexp) bool {
	return slices.ContainsFunc(args, func(a arg) bool { return re.MatchString(a.text) })
}

// flag finds a short flag, also among others ("-uf"), or a long one, also cut short as GNU programs allow ("--recurs").
func flag(args []arg, short byte, longs ...string) bool {
	for _, a := range args {
		if a.text == "--" {
			return false
		}
		name, _, _ := strings.Cut(a.text, "=")
		for _, long := range longs {
			if len(name) >= 4 && strings.HasPrefix(long, name) {
				return true
			}
		}
		if short != 0 && len(a.text) > 1 && a.text[0] == '-' && a.text[1] != '-' && strings.IndexByte(a.text, short) > 0 {
			return true
		}
	}
	return false
}
