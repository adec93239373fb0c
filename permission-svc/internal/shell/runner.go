package shell

import (
	"regexp"
	"slices"
	"strings"
)

// isWrapper reports whether a program runs what its arguments say.
func isWrapper(name string, args []arg) bool {
	switch name {
	case "npm", "pnpm", "yarn", "uv", "poetry", "pipenv", "conda", "mise", "nix", "bundle", "direnv", "bun", "hatch", "pdm":
		for _, a := range args {
			if !a.literal {
				return true
			}
			if !strings.HasPrefix(a.text, "-") {
				runs := []string{"exec", "x", "dlx"}
				if name != "npm" && name != "pnpm" && name != "yarn" && name != "bun" {
					runs = append(runs, "run", "tool")
				}
				return slices.Contains(runs, a.text)
			}
		}
		return false
	}
	return slices.Contains([]string{
		"sudo", "doas", "su", "runuser", "env", "nice", "ionice", "nohup", "timeout", "time", "stdbuf", "setsid", "command", "exec", "builtin",
		"xargs", "parallel", "flock", "chroot", "nsenter", "unshare", "watch", "script", "screen", "tmux", "strace", "ltrace", "perf", "valgrind",
		"busybox", "toybox", "ssh", "rsh", "mosh", "npx", "bunx", "pnpx", "uvx", "pipx", "systemd-run", "xvfb-run", "fakeroot", "proot", "bwrap", "firejail",
		"entr", "hyperfine", "chrt", "taskset", "numactl", "prlimit", "setarch", "caffeinate", "start-stop-daemon", "daemonize", "nodemon", "concurrently",
		"docker", "podman", "nerdctl", "vagrant", "lxc", "incus", "distrobox", "toolbox", "xdg-open", "dbus-run-session", "sshpass", "coproc",
		"pkexec", "gosu", "su-exec", "setpriv", "capsh", "machinectl", "multipass", "wsl", "adb", "sg", "nix-shell", "ansible", "runcon", "chpst", "s6-setuidgid", "tini",
		"dumb-init", "fakechroot", "cgexec", "faketime", "unbuffer", "rlwrap", "catchsegv", "linux32", "linux64", "setlsid", "man", "less", "more", "nc", "ncat", "netcat", "socat", "make", "gmake",
	}, name)
}

// wrapper looks at everything that could be the wrapped command: it does not need to know the wrapper's options, since
// each argument is looked at as if the command began there.
func (s *scan) wrapper(name string, args []arg, depth int) {
	if name == "command" && len(args) > 0 && (args[0].text == "-v" || args[0].text == "-V") {
		s.plain("command -v")
		return
	}
	switch name {
	case "man", "less", "more", "nc", "ncat", "netcat", "socat", "make", "gmake":
		s.rarely(name, args)
		return
	}
	s.wrapped = true
	s.words = append(s.words, name)
	s.variables(args)
	if slices.Contains([]string{"docker", "podman", "nerdctl"}, name) {
		s.remote(name, args, depth)
	}
	s.inside(args, depth)
	if slices.Contains([]string{"xargs", "parallel", "entr"}, name) {
		s.opaque = s.opaque || runsItsInput(args) || slices.ContainsFunc(args, func(a arg) bool { return isShell(Base(a.text)) || isInterpreter(Base(a.text)) })
	}
}

// runsItsInput finds xargs and its kin with a placeholder, or with nothing, where the command should stand.
func runsItsInput(args []arg) bool {
	placeholder := false
	for _, a := range args {
		switch {
		case a.text == "{}" || a.text == "%":
			if placeholder {
				return true // the first one was the value of -I
			}
			placeholder = true
		case strings.HasPrefix(a.text, "-I{") || strings.HasPrefix(a.text, "-i") || strings.HasPrefix(a.text, "--replace"):
			placeholder = true
		case !strings.HasPrefix(a.text, "-"):
			return false
		}
	}
	return placeholder
}

// variables finds NAME=VALUE among a wrapper's arguments that changes what a command word means.
func (s *scan) variables(args []arg) {
	for _, a := range args {
		if name, _, ok := strings.Cut(a.text, "="); ok && RiskyVariable(name) {
			s.opaque = true
		}
	}
}

// rarely looks at programs that run something else with few of their options only.
func (s *scan) rarely(name string, args []arg) {
	runs := map[string][]string{
		"man": {"-P", "--pager", "-H"}, "less": {"+"}, "more": {"+"}, "nc": {"-e", "-c", "--exec", "--sh-exec"}, "ncat": {"-e", "-c", "--exec", "--sh-exec", "--lua-exec"},
		"netcat": {"-e", "-c", "--exec"}, "socat": {"EXEC", "SYSTEM", "exec", "system", "SHELL", "shell"}, "make": {"--eval", "-E", "-f-", "--file=-"}, "gmake": {"--eval", "-E", "-f-", "--file=-"},
	}
	s.variables(args)
	s.opaque = s.opaque || anyPrefix(args, runs[name]...) || name == "socat" && matches(args, regexp.MustCompile(`(?i)\b(exec|system|shell):`))
	s.plain(phrase(name, name, args))
}

// inside looks for commands among arguments.
func (s *scan) inside(args []arg, depth int) {
	for i, a := range args {
		switch {
		case !a.literal:
			s.opaque = true
		case strings.ContainsAny(a.text, " \t\n;|&`$<>("):
			s.source(codeIn(a.text), depth+1)
		case runsOrDestroys(a.text, args[i+1:]):
			s.commands++
			if s.commands > MaxCommands || depth >= MaxDepth {
				s.opaque = true
				return
			}
			s.program(a.text, args[i+1:], depth+1)
		}
	}
}

// codeIn is the code in an argument, where an option stands before it: -S'rm x', --run='rm x'.
func codeIn(text string) string {
	if !strings.HasPrefix(text, "-") {
		return text
	}
	if _, value, ok := strings.Cut(text, "="); ok && strings.HasPrefix(text, "--") {
		return value
	}
	return text[min(2, len(text)):]
}

// runsOrDestroys reports whether a word would matter if it stood in command position.
func runsOrDestroys(word string, rest []arg) bool {
	if word == "" || word[0] == '-' {
		return false
	}
	name := Base(word)
	return alwaysDestroys(name) || isShell(name) || isInterpreter(name) || isWrapper(name, rest) || remoteTool(name) ||
		slices.Contains([]string{"find", "fd", "git", "dd", "tee", "chmod", "chown", "chgrp", "crontab", "rsync", "curl", "eval", "awk", "sed", "sqlite3", "psql", "cmd", "powershell", "pwsh"}, name)
}

// find looks at the actions of find and fd.
func (s *scan) find(name string, args []arg, depth int) {
	s.when(false, name, args)
	for i, a := range args {
		switch {
		case a.text == "-delete" || strings.HasPrefix(a.text, "-fprint") || a.text == "-fls":
			s.destroys(name + " " + a.text)
		case slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, a.text), name != "find" && slices.Contains([]string{"-x", "-X", "--exec", "--exec-batch"}, a.text):
			s.wrapped = true
			inner := args[i+1:]
			if len(inner) == 0 || !inner[0].literal {
				s.opaque = true
				return
			}
			s.command(inner, depth+1)
			s.inside(inner[1:], depth)
			s.opaque = s.opaque || isShell(Base(inner[0].text))
		}
	}
}

// remoteTool names the command lines that change things elsewhere by a verb among their arguments.
func remoteTool(name string) bool {
	return slices.Contains([]string{"kubectl", "oc", "helm", "terraform", "tofu", "pulumi", "gh", "glab", "aws", "gcloud", "gsutil", "az", "docker-compose", "heroku", "fly",
		"flyctl", "doctl", "vercel", "netlify", "wrangler", "rclone", "s3cmd", "mc", "firebase", "eksctl", "ansible", "ansible-playbook", "vault", "consul", "nomad", "argocd", "flux",
		"virsh", "qm", "pct", "openstack", "hcloud", "linode-cli", "ibmcloud", "oci"}, name)
}

// remote finds the verb. What follows "exec" or "run" is looked at as a command.
func (s *scan) remote(name string, args []arg, depth int) {
	word := name
	if matches(args, regexp.MustCompile(`(?i)^(-X|--request=|--method=)?delete$`)) {
		s.destroys(name + " delete")
		return
	}
	verbs := []string{"delete", "destroy", "rm", "rmi", "rb", "remove", "prune", "purge", "uninstall", "terminate", "drain", "drop", "down", "kill", "wipe", "reset", "sync", "apply", "replace", "del"}
	for i, a := range args {
		if !a.literal {
			s.opaque = true
			s.words = append(s.words, name)
			return
		}
		if strings.HasPrefix(a.text, "-") {
			continue
		}
		verb := slices.ContainsFunc(verbs, func(v string) bool { return a.text == v || strings.HasPrefix(a.text, v+"-") })
		switch {
		case a.text == "down" && strings.HasPrefix(name, "d"):
			if flag(args[i+1:], 'v', "--volumes") {
				s.destroys(word + " down -v")
				return
			}
		case verb:
			s.destroys(name + " " + a.text)
			return
		case a.text == "exec" || a.text == "run":
			s.wrapped = true
			s.inside(args[i+1:], depth)
		}
		if word == name {
			word += " " + a.text
		}
	}
	s.plain(word)
}
