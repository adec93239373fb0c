// Package stack runs the real `writ` binary for tests: `writ up` on a home of its own, connections with the credentials
// of the embedded form, kill -9, restart, and the proof that no process was left behind.
package stack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// binEnv names the folder with the programs under test, for the tests of one package and what they start.
const binEnv = "WRIT_E2E_BIN"

// programs are the packages that are built, by the name of the program.
func programs() map[string]string {
	return map[string]string{
		"writ":           "./cmd/writ",
		"echo-server":    "./examples/echo-server",
		"hostile-server": "./examples/hostile-server",
		"abuse":          "./e2e/internal/abuse",
	}
}

// Main builds the programs once into a temporary folder and runs the tests. TestMain calls it and nothing else. Where
// WRIT_E2E_BIN names a folder, the programs in it are tested as they are: those of a release, or for another user.
func Main(m *testing.M) {
	if os.Getenv(binEnv) != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "writ-e2e-bin")
	if err == nil {
		err = build(dir)
	}
	if err == nil {
		err = os.Setenv(binEnv, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func build(dir string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, pkg := range programs() {
		args = append(args, pkg)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", root, err, out)
	}
	return os.Chmod(dir, 0o755) // MCP servers are started from it under another user id
}

// Root is the repository's root.
func Root() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", fmt.Errorf("where this package lies is not known")
	}
	return filepath.Abs(filepath.Join(filepath.Dir(file), "..", "..", ".."))
}

// Program is the path of a built program.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv(binEnv)
	if dir == "" {
		t.Fatal("TestMain has to call stack.Main")
	}
	return filepath.Join(dir, name)
}
