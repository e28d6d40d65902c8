#!/usr/bin/env bash
# Whole turns with a real model behind turnd: installs the server and the model, builds turnd, drives it.
#
# usage: tests/e2e/real_model/run.sh [DIR]      (default: target/real-model, 130 MB on disk, 400 MB of memory)
#
# Exit code 3: the model server does not run on this machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
dir=${1:-$target/real-model}
"$here/setup.sh" "$dir"
(cd "$root" && cargo build --release)
exec "$dir/python/bin/python" "$here/drive.py" "$dir/model.gguf" -- "$target/release/turnd"
