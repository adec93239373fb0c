package sandbox

import (
	"fmt"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const errnoAction = uint32(seccomp.ActionErrno)

// Denied to every confined payload: kernel surface that no tool needs and that
// namespaces don't separate (keyrings, bpf, io_uring's own syscall path, …).
var deniedAlways = []string{
	"add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd",
	"kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
	"open_by_handle_at", "acct", "swapon", "swapoff", "reboot", "iopl", "ioperm",
	"lookup_dcookie", "nfsservctl", "vhangup", "quotactl", "quotactl_fd", "syslog",
	"settimeofday", "clock_settime", "clock_adjtime", "adjtimex",
}

// Denied to commands in addition.
var deniedToCommands = []string{
	"mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick",
	"open_tree", "open_tree_attr", "move_mount", "mount_setattr", "unshare", "setns",
	"process_vm_readv", "process_vm_writev", "pidfd_getfd", "process_madvise",
	"io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret", "kcmp",
	"sethostname", "setdomainname",
}

const cloneNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// filters returns the programs to install, in order. The second is our own
// because the library lets foreign architectures (int 0x80) fall through to
// the default action, and compares 64 bits where the kernel reads 32.
func filters(profile Profile, noInet bool) ([][]bpf.RawInstruction, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	policy := policyFor(info, profile, noInet)
	instructions, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	main, err := bpf.Assemble(instructions)
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	guard, err := bpf.Assemble(guardProgram(info))
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	return [][]bpf.RawInstruction{main, guard}, nil
}

func policyFor(info *arch.Info, profile Profile, noInet bool) seccomp.Policy {
	names := append([]string{}, deniedAlways...)
	args := []seccomp.NameWithConditions{}
	if profile == ProfileCommand {
		names = append(names, deniedToCommands...)
		args = append(args,
			// The init stops the payload at its exec with TRACEME and lets it go
			// with DETACH; neither gives one process power over another.
			seccomp.NameWithConditions{Name: "ptrace", Conditions: seccomp.ArgumentConditions{
				{Argument: 0, Operation: seccomp.NotEqual, Value: unix.PTRACE_TRACEME},
				{Argument: 0, Operation: seccomp.NotEqual, Value: unix.PTRACE_DETACH},
			}},
			seccomp.NameWithConditions{Name: "clone", Conditions: seccomp.ArgumentConditions{
				{Argument: 0, Operation: seccomp.BitsSet, Value: cloneNamespaces},
			}})
	}
	groups := []seccomp.SyscallGroup{
		{Names: known(info, names), NamesWithCondtions: args, Action: seccomp.ActionErrno},
		{NamesWithCondtions: []seccomp.NameWithConditions{socketFamilies(noInet)},
			Action: seccomp.Action(errnoAction | uint32(unix.EAFNOSUPPORT))},
	}
	if profile == ProfileCommand {
		// Its flags are behind a pointer; libraries fall back to clone.
		groups = append(groups, seccomp.SyscallGroup{Names: known(info, []string{"clone3"}),
			Action: seccomp.Action(errnoAction | uint32(unix.ENOSYS))})
	}
	return seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: groups}
}

// socketFamilies refuses every family but the ones listed: AF_VSOCK reaches a
// virtual machine's host through any network namespace.
func socketFamilies(noInet bool) seccomp.NameWithConditions {
	families := []uint64{unix.AF_UNIX}
	if !noInet {
		families = append(families, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK)
	}
	var all seccomp.ArgumentConditions
	for _, f := range families {
		all = append(all, seccomp.Condition{Argument: 0, Operation: seccomp.NotEqual, Value: f})
	}
	return seccomp.NameWithConditions{Name: "socket", Conditions: all}
}

func known(info *arch.Info, names []string) []string {
	out := names[:0:0]
	for _, n := range names {
		if _, ok := info.SyscallNames[n]; ok {
			out = append(out, n)
		}
	}
	return out
}

// guardProgram kills foreign architectures and refuses terminal injection
// (TIOCSTI, TIOCLINUX), comparing the 32 bits that the kernel looks at.
func guardProgram(info *arch.Info) []bpf.Instruction {
	const (
		offNR, offArch, offArg1 = 0, 4, 16 + 8
		tiocsti, tioclinux      = 0x5412, 0x541C
	)
	ioctl := info.SyscallNames["ioctl"]
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(seccomp.ActionKillProcess)},
		bpf.LoadAbsolute{Off: offNR, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ioctl), SkipFalse: 3},
		bpf.LoadAbsolute{Off: offArg1, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tiocsti, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tioclinux, SkipTrue: 1},
		bpf.RetConstant{Val: uint32(seccomp.ActionAllow)},
		bpf.RetConstant{Val: errnoAction | uint32(unix.EPERM)},
	}
}

// installFilter puts one program on the calling thread, which must be locked
// and have no_new_privs.
func installFilter(program []bpf.RawInstruction) error {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: (*unix.SockFilter)(unsafe.Pointer(&program[0]))}
	_, _, no := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if no != 0 {
		return no
	}
	return nil
}
