package shell

import (
	"slices"
	"strings"
)

// git looks at a git command by its sub-command.
func (s *scan) git(args []arg, depth int) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case !a.literal || a.pattern:
			s.opaque = true
			s.words = append(s.words, "git")
			return
		case a.text == "-c" || a.text == "--config-env":
			i++
			if i >= len(args) || !args[i].literal || !harmlessConfig(args[i].text) {
				s.opaque = true
			}
			if i < len(args) {
				if _, code, ok := strings.Cut(args[i].text, "=!"); ok {
					s.source(code, depth+1)
				}
			}
		case slices.Contains([]string{"-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix"}, a.text):
			i++
		case strings.HasPrefix(a.text, "--exec-path="):
			s.opaque = true
		case strings.HasPrefix(a.text, "-"):
		default:
			s.subcommand(a.text, args[i+1:], depth)
			return
		}
	}
	s.plain("git")
}

// harmlessConfig names settings that run nothing.
func harmlessConfig(setting string) bool {
	key, _, _ := strings.Cut(strings.ToLower(setting), "=")
	return slices.ContainsFunc([]string{"user.", "color.", "advice.", "commit.gpgsign", "init.defaultbranch", "push.default", "pull.rebase", "core.quotepath", "safe.directory", "http.postbuffer"},
		func(p string) bool { return strings.HasPrefix(key, p) })
}

func (s *scan) subcommand(name string, args []arg, depth int) {
	phrase := destroysInGit(name, args)
	switch {
	case phrase != "":
		s.destroys("git " + phrase)
	case slices.Contains([]string{"submodule", "bisect", "filter-branch", "filter-repo", "difftool", "mergetool", "rebase", "grep", "fetch", "pull", "clone", "ls-remote", "archive"}, name):
		s.plain("git " + name)
		if name == "filter-branch" || name == "filter-repo" || anyPrefix(args, "foreach", "run", "-x", "--exec", "--extcmd", "-O", "--open-files", "--upload-pack", "-u", "ext::", "-c", "--config", "--receive-pack") {
			s.opaque = true
			s.inside(args, depth)
		}
	case ruledInGit(name) && !allLiteral(args):
		s.opaque = true
		s.words = append(s.words, "git "+name)
	default:
		s.plain("git " + name)
	}
}

// ruledInGit names the sub-commands whose arguments decide; one that can't be read leaves it open.
func ruledInGit(name string) bool {
	return slices.Contains([]string{"push", "reset", "clean", "checkout", "switch", "branch", "stash", "restore", "tag", "rm", "worktree", "reflog", "gc", "update-ref", "remote", "lfs", "notes", "replace", "submodule", "config"}, name)
}

// destroysInGit is the phrase for what loses work, "" for anything else.
func destroysInGit(name string, args []arg) string {
	has := func(texts ...string) bool {
		return slices.ContainsFunc(args, func(a arg) bool { return slices.Contains(texts, a.text) })
	}
	switch name {
	case "push":
		return destroysByPush(args)
	case "reset":
		if flag(args, 0, "--hard", "--merge", "--keep") {
			return "reset --hard"
		}
	case "clean":
		if !flag(args, 'n', "--dry-run") {
			return "clean"
		}
	case "checkout":
		if has("--", ".", ":/") || flag(args, 'f', "--force", "--ours", "--theirs", "--pathspec-from-file") || anyPrefix(args, ":", "./", "../", "*") {
			return "checkout --"
		}
		if flag(args, 'B') {
			return "checkout -B"
		}
	case "switch":
		if flag(args, 'f', "--force", "--discard-changes", "--force-create") || flag(args, 'C') {
			return "switch --discard-changes"
		}
	case "branch":
		if flag(args, 'D') || flag(args, 'M') || flag(args, 'C') || flag(args, 'f', "--force") {
			return "branch -D"
		}
	case "stash":
		if has("drop", "clear") {
			return "stash drop"
		}
	case "restore":
		if !flag(args, 'S', "--staged") || flag(args, 'W', "--worktree") {
			return "restore"
		}
	case "tag":
		if flag(args, 'd', "--delete") || flag(args, 'f', "--force") {
			return "tag -d"
		}
	case "rm":
		if flag(args, 'f', "--force") {
			return "rm -f"
		}
	default:
		return destroysInPlumbing(name, has, args)
	}
	return ""
}

func destroysInPlumbing(name string, has func(...string) bool, args []arg) string {
	switch {
	case name == "worktree" && has("remove", "prune"), name == "reflog" && has("expire", "delete"), name == "remote" && has("remove", "rm", "prune"),
		name == "lfs" && has("prune"), name == "notes" && has("remove", "prune"), name == "submodule" && has("deinit"):
		return name + " remove"
	case name == "update-ref" && flag(args, 'd', "--delete", "--stdin"), name == "gc" && anyPrefix(args, "--prune", "--aggressive"), name == "replace" && flag(args, 'd', "--delete"):
		return name + " --delete"
	case name == "prune", name == "config" && anyPrefix(args, "alias.", "core.", "--unset", "--remove", "filter.", "credential."):
		return name
	}
	return ""
}

func destroysByPush(args []arg) string {
	if flag(args, 'n', "--dry-run") {
		return ""
	}
	for _, a := range args {
		if strings.HasPrefix(a.text, "--force-w") || strings.HasPrefix(a.text, "--force-i") {
			return "push --force-with-lease"
		}
	}
	if flag(args, 'f', "--force") {
		return "push --force"
	}
	if flag(args, 'd', "--delete", "--mirror", "--prune") {
		return "push --delete"
	}
	for _, a := range args {
		if strings.HasPrefix(a.text, "+") {
			return "push --force"
		}
		if strings.HasPrefix(a.text, ":") && a.text != ":" {
			return "push --delete"
		}
	}
	return ""
}
