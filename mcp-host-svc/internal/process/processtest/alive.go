package processtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// GroupAlive reports whether a process of the process group lives. One that has
// ended and waits to be reaped by somebody does not.
func GroupAlive(pgid int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// pid (comm) state ppid pgrp …; comm may hold anything, so count from its end.
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if len(fields) > 2 && string(fields[0]) != "Z" && string(fields[2]) == strconv.Itoa(pgid) {
			return true
		}
	}
	return false
}
