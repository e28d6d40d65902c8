#!/usr/bin/env bash
# Installs the real ACP clients that tests/e2e.rs drives turnd with, from PyPI and npm, at pinned versions.
#
# usage: tests/e2e/setup.sh [DIR]      (default: target/e2e-clients)
#
# DIR/python is a virtual environment, DIR/node_modules the Node packages with a node new enough for acpx.
# Prints the two lines that tell the tests where they are; a second run installs only what changed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=${1:-$root/target/e2e-clients}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

say() { printf '%s\n' "$*" >&2; }

# True when every FILE is what the last successful install used.
unchanged() { # STAMP FILE...
  local stamp=$1
  shift
  [ -f "$stamp" ] && [ "$(cat "$@" | sha256sum)" = "$(cat "$stamp")" ]
}

if ! unchanged "$dir/python.stamp" "$here/requirements.txt"; then
  say "installing the Python client into $dir/python"
  # Debian keeps the venv module in a package of its own.
  python3 -c 'import ensurepip' 2>/dev/null || {
    say "python3 cannot make virtual environments, installing python3-venv"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >&2
  }
  rm -rf "$dir/python"
  python3 -m venv "$dir/python"
  "$dir/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
  cat "$here/requirements.txt" | sha256sum >"$dir/python.stamp"
fi

if ! unchanged "$dir/node.stamp" "$here/package.json" "$here/package-lock.json"; then
  say "installing the Node clients into $dir/node_modules"
  cp "$here/package.json" "$here/package-lock.json" "$dir/"
  # Not `npm ci`: it refuses a lock file that names packages for other systems only.
  (cd "$dir" && npm install --loglevel=error --ignore-scripts --no-audit --no-fund >&2)
  cat "$here/package.json" "$here/package-lock.json" | sha256sum >"$dir/node.stamp"
fi

printf 'export TURND_TEST_PYTHON=%q\n' "$dir/python/bin/python"
printf 'export TURND_TEST_NODE_MODULES=%q\n' "$dir/node_modules"
