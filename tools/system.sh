#!/usr/bin/env bash
# What the tests use beside Go, make, git and Node.js: openssl as a second judge of signatures, a C compiler for the race
# detector, and util-linux. Installs what is missing where this is Debian and we are root; says what to do elsewhere.
set -euo pipefail
missing=()
for pair in openssl:openssl gcc:gcc unshare:util-linux; do
  command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
  # libc6-dev comes by recommendation with gcc, and the race detector needs it.
  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" libc6-dev
else
  echo "the tests need: ${missing[*]}. Install them (Debian: apt-get install ${missing[*]} libc6-dev) and run again" >&2
  exit 1
fi
