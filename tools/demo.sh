#!/usr/bin/env bash
# A newcomer's first minute: one process, two real MCP servers, a read that runs, a write that asks, a sandboxed command,
# and the record of all three. Everything lives in a temporary folder that goes away at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
writ=$root/bin/writ
# /tmp rather than $TMPDIR: a unix socket's path has to be short.
dir=$(mktemp -d /tmp/writ-demo.XXXXXX)
export WRIT_HOME=$dir/home
finish() {
  status=$?
  "$writ" down >/dev/null 2>&1 || true
  if [ $status -ne 0 ]; then echo "--- the server's last lines"; tail -n 15 "$WRIT_HOME/log/writ.log" 2>/dev/null || true; fi
  rm -rf "$dir"
}
trap finish EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { printf '$ %s\n' "${*/$root\/bin\//}"; "$@"; }

# The card that waits, once there is one; $1 is what to show when none comes.
open_card() {
  local card
  for _ in $(seq 100); do
    card=$("$writ" cards list 2>/dev/null | awk '$2 == "pending" { print $1; exit }')
    [ -n "$card" ] && { echo "$card"; return; }
    sleep 0.1
  done
  { cat "$1"; echo "no card came"; } >&2
  return 1
}

mkdir -p "$dir/notes"
cp README.md "$dir/notes/readme.md"
printf 'buy milk\n' >"$dir/notes/todo.md"

say "1. One process with six services"
run "$writ" up -d --listen none

say "2. Two MCP servers: npm's filesystem server on a folder of ours, and this repository's example"
run "$writ" connector add fs --yes -- node "$root/.cache/npm-peers/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js" "$dir/notes"
run "$writ" connector add echo --yes -- "$root/bin/echo-server"
run "$writ" plugin list

say "3. A read. A person said once that this tool only reads, so it runs"
run "$writ" settings tool mcp.fs.read_text_file --class read
run "$writ" call mcp.fs.read_text_file path="$dir/notes/todo.md"

say "4. A write. Nobody classified it, so a person is asked"
printf '$ writ call mcp.fs.write_file path=… content=…\n'
"$writ" call mcp.fs.write_file path="$dir/notes/todo.md" content="buy milk and bread" >"$dir/write.out" 2>&1 &
call=$!
card=$(open_card "$dir/write.out")
run "$writ" cards approve "$card" --reason "a demo"
wait $call
cat "$dir/write.out"
printf '$ cat notes/todo.md\n%s\n' "$(cat "$dir/notes/todo.md")"

say "5. A command in the sandbox: no network, no home folder, writes only where the workspace is"
mkdir -p "$dir/work"
"$writ" run --workspace "$dir/work" -- sh -c 'id -u; ls / | tr "\n" " "; echo; cat /proc/net/route | wc -l; echo made by the sandbox > made.txt' >"$dir/run.out" 2>&1 &
run_pid=$!
card=$(open_card "$dir/run.out")
run "$writ" cards approve "$card"
wait $run_pid
cat "$dir/run.out"
cat "$dir/work/made.txt"

say "6. What is recorded"
run "$writ" calls list
run "$writ" receipt last
run "$writ" trace last

say "Done. Try it on your own home:  bin/writ up -d"
