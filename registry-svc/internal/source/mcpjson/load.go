package mcpjson

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Load reads the file path. A file that is not there has no entries and no problems. One that other users may write,
// or that belongs to another user, is not read: who can write it can add a provider, and that is an operator's act.
func Load(path string, bound map[string]map[string]string) File {
	r := &reader{path: path}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return File{}
	}
	if err != nil {
		r.fileProblem(0, "", "the file can't be opened: "+errno(err)+".", "Make it readable for the user that runs Writ.")
		return r.file
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		r.fileProblem(0, "", "this is no regular file.", "Put a file there.")
		return r.file
	}
	if why, next := untrusted(info); why != "" {
		r.fileProblem(0, "", why, next)
		return r.file
	}
	content, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		r.fileProblem(0, "", "the file can't be read: "+errno(err)+".", "Look at the disk.")
		return r.file
	}
	return Read(path, content, bound)
}

func untrusted(info fs.FileInfo) (why, next string) {
	if info.Mode().Perm()&0o002 != 0 {
		return fmt.Sprintf("the file has mode %04o: everybody may write it, and so add a server.", info.Mode().Perm()), "Run chmod o-w on it."
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Sprintf("the file belongs to uid %d, Writ runs as uid %d.", st.Uid, os.Geteuid()), "Make it your own."
	}
	return "", ""
}

// errno is the system's own word, without the path that the problem names already.
func errno(err error) string {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e.Error()
	}
	return err.Error()
}
