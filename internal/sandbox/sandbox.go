// Package sandbox is the one launcher through which every process that Writ
// starts goes: commands, MCP servers, native modules. It starts the payload
// under an init of its own (a re-execution of the calling binary), reads back
// from the kernel what is really in force before the payload runs its first
// instruction, and guarantees that nothing outlives the payload's leader.
//
// A program that launches calls Main as the first statement of main (and of
// TestMain), then Start.
//
// Stated limits. A server ("guarded") still sees and changes what its user may
// see and change, except masked paths: the profile protects Writ from the
// server and the machine from uid 0, not the user's own files. When the
// service runs as root, a server reaches the files of root, but not files
// that only root's capabilities could open, such as another user's 0700 home.
// A launch forks the calling process with a new user namespace, for which the
// kernel copies page tables: it costs time in proportion to the caller's
// resident memory.
package sandbox

import (
	"os"
	"syscall"
	"time"
)

// Level says how strongly a process is confined. Levels are ordered.
type Level string

const (
	// LevelHost: nothing is enforced; the process tree is tracked and ended.
	LevelHost Level = "host"
	// LevelGuarded: own user, mount and pid namespaces, masked paths, never
	// host uid 0, no capabilities; the user's files and network are shared.
	LevelGuarded Level = "guarded"
	// LevelRestricted: no namespaces; Landlock and seccomp only.
	LevelRestricted Level = "restricted"
	// LevelIsolatedSoftCaps: as LevelIsolated, but a limit or a second layer
	// is weaker than asked; Enforced.Degraded says which.
	LevelIsolatedSoftCaps Level = "isolated-soft-caps"
	// LevelIsolated: all namespaces, no capabilities, seccomp, Landlock,
	// limits kept by cgroups.
	LevelIsolated Level = "isolated"
)

func (l Level) rank() int {
	switch l {
	case LevelHost:
		return 1
	case LevelGuarded:
		return 2
	case LevelRestricted:
		return 3
	case LevelIsolatedSoftCaps:
		return 4
	case LevelIsolated:
		return 5
	}
	return 0
}

// Valid reports whether l is one of the known levels.
func (l Level) Valid() bool { return l.rank() > 0 }

// AtLeast reports whether l confines as strongly as least. An unknown level
// satisfies nothing and is satisfied by nothing; an empty least asks nothing.
func (l Level) AtLeast(least Level) bool {
	if least == "" {
		return l.Valid()
	}
	return l.Valid() && least.Valid() && l.rank() >= least.rank()
}

// Profile chooses what a sandbox looks like from inside.
type Profile string

const (
	// ProfileCommand: a private root with read-only system folders and the
	// Binds, nothing else.
	ProfileCommand Profile = "command"
	// ProfileServer: the whole host file system as the same user, never as
	// host uid 0, with Mask paths hidden.
	ProfileServer Profile = "server"
	// ProfileHost: approved host execution. Nothing is enforced and it is
	// never described as isolation; the process tree is tracked and ended.
	ProfileHost Profile = "host"
)

// Networks of Spec.Network.
const (
	NetworkNone = "none"
	NetworkOpen = "open"
)

// Bind is a host path that a command may reach.
type Bind struct {
	// Path is absolute and free of symbolic links; a link anywhere in it is
	// refused with ELOOP.
	Path string
	// Target is where it appears inside; empty means Path.
	Target string
	// Write allows writing.
	Write bool
	// Dev and Ino are the identity that was approved (st_dev, st_ino), checked
	// before and again after mounting. Both 0: not checked.
	Dev, Ino uint64
}

// Spec says what to start and within which bounds.
type Spec struct {
	// Argv is the complete argument vector; Executable the absolute path that
	// is executed, as seen inside.
	Argv       []string
	Executable string
	// Dir is the working folder as seen inside, absolute.
	Dir string
	// Env is complete: nothing is inherited. WRIT_SCOPE is added.
	Env     []string
	Profile Profile
	// Mask lists existing absolute paths that must not be reachable inside.
	Mask  []string
	Binds []Bind
	// Network is "none" or "open". Servers and host runs have "open" only.
	Network string
	// Least is the weakest acceptable level. A machine that can't give it
	// makes Start fail; nothing weaker is tried.
	Least Level
	// Stdin, Stdout and Stderr; nil is /dev/null.
	Stdin, Stdout, Stderr *os.File
	// MaxProcesses bounds processes and threads, MaxMemory bytes of memory,
	// MaxFileSize bytes of one file. 0: unbounded.
	MaxProcesses           int
	MaxMemory, MaxFileSize int64
	// Scope marks the processes (environment WRIT_SCOPE) for Sweep.
	Scope string
}

// Degradation is something that was wanted and is weaker than wanted.
type Degradation struct {
	What   string `json:"what"`
	Wanted string `json:"wanted"`
	Got    string `json:"got"`
	Cause  string `json:"cause,omitempty"`
}

// Enforced is what the init read back from the kernel about the payload after
// its exec and before its first instruction.
type Enforced struct {
	Level Level `json:"level"`
	// Namespaces are the kinds that differ from the service's: user, mnt, …
	Namespaces []string `json:"namespaces"`
	NoNewPrivs bool     `json:"no_new_privs"`
	// Seccomp is the mode (2 = filter), CapEff the effective capability mask.
	Seccomp int    `json:"seccomp"`
	CapEff  string `json:"cap_eff"`
	// LandlockABI is 0 when no Landlock domain was entered. Landlock can't be
	// read back: it is what the kernel accepted.
	LandlockABI int `json:"landlock_abi"`
	// Network is "netns_empty", "seccomp_denied" or "host".
	Network string `json:"network"`
	// HostUID is the payload's user id as the host sees it.
	HostUID int `json:"host_uid"`
	// Writable and ReadOnly are mount points with that flag in force.
	Writable []string `json:"writable"`
	ReadOnly []string `json:"read_only"`
	// Limits are the limits in force, as name to "value (kind)".
	Limits map[string]string `json:"limits,omitempty"`
	// Tracking is "pidns" or "subreaper".
	Tracking string        `json:"tracking"`
	Degraded []Degradation `json:"degraded,omitempty"`
}

// Survivor is a process that was alive when its leader ended.
type Survivor struct {
	PID  int      `json:"pid"`
	PPID int      `json:"ppid"`
	Comm string   `json:"comm"`
	Argv []string `json:"argv,omitempty"`
}

// Exit tells how a run ended.
type Exit struct {
	// Code is the leader's exit status, or -1 when a signal ended it.
	Code   int
	Signal syscall.Signal
	// Survivors were alive when the leader ended (at most 256 are listed).
	Survivors []Survivor
	// CleanedUp says that none of the run's processes is left.
	CleanedUp bool
	// InitLost says that the init ended without a report: how the leader ended
	// and which survivors there were is unknown.
	InitLost bool
	// CPU is user and system time of the leader and its waited-for children.
	CPU    time.Duration
	MaxRSS int64 // bytes, of the largest single process
}
