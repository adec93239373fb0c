package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Frames travel over a socket pair between the owner and its init: a length
// of four bytes, then JSON. The owner is trusted by the init; the owner bounds
// and checks what it reads, since the init shares a kernel user with payloads.

const maxFrame = 16 << 20

const (
	initArgv0 = "writ-sandbox-init"
	// ctrlFD is where the init finds its control socket. Mount descriptors
	// follow it.
	ctrlFD = 3

	roleRun    = "run"
	roleHold   = "hold"
	roleProbe  = "probe"
	roleFilter = "probe-filter" // of a machine without namespaces: mounts nothing

	modeNamespaces = "namespaces"
	modeRestricted = "restricted"
	modeHost       = "host"
)

// initConfig is the owner's first frame.
type initConfig struct {
	Role    string
	Mode    string
	Profile Profile

	Argv       []string
	Executable string
	Dir        string
	Env        []string
	Network    string

	// InsideUID and InsideGID are the ids that the payload sees as its own.
	InsideUID, InsideGID int
	Binds                []initBind
	// View is the idmapped file system of a server under a root service,
	// parents first; empty when the host's own mounts are used.
	View []viewMount
	// Mask holds resolved paths and their aliases; Procs further mounted proc
	// file systems to hide.
	Mask  []string
	Procs []string

	// HostNS are the owner's namespace links, by kind, to compare with.
	HostNS map[string]string
	// HardCaps says that cgroups hold the limits that were asked for.
	HardCaps                             bool
	Limits                               map[string]string
	Degraded                             []Degradation
	MaxProcesses, MaxMemory, MaxFileSize int64
}

// initBind is a Bind as the init gets it. FD is a detached mount made by the
// owner, or -1 when the init clones the path itself.
type initBind struct {
	Path, Target string
	Write        bool
	Dev, Ino     uint64
	FD           int
}

type viewMount struct {
	Target string
	FD     int
}

type ownerFrame struct {
	Kind    string // release, terminate, kill
	GraceMS int64
}

type initFrame struct {
	Kind     string // error, enforced, exit, probe, ready
	Error    *Error
	Enforced *Enforced
	Exit     *exitReport
	Probe    map[string]Check
}

type exitReport struct {
	Code      int
	Signal    int
	Survivors []Survivor
	CleanedUp bool
	CPUNanos  int64
	MaxRSS    int64
}

func writeFrame(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("frame of %d bytes, at most %d", len(body), maxFrame)
	}
	buf := make([]byte, 4+len(body))
	binary.BigEndian.PutUint32(buf, uint32(len(body)))
	copy(buf[4:], body)
	_, err = w.Write(buf)
	return err
}

func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("frame of %d bytes, at most %d", n, maxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}
