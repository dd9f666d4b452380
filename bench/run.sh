#!/usr/bin/env bash
# Measures everything side by side in one run: bench/README.md has the cases and how to read them.
#
#   bench/run.sh [--case=NAME]... [--json=FILE] [--out=DIR] [--quick]
#
# Installs and builds what it needs. BAZEL_FLAGS: flags in front of bazel's command, BUILD_FLAGS:
# flags behind "bazel build".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
deploy/setup.sh build bench
# shellcheck disable=SC2086  # both are lists of words
bazel ${BAZEL_FLAGS:-} build ${BUILD_FLAGS:-} --noshow_progress \
  //bench/data_plane //bench:slow_link //bench:train_step //bench:apply_kernels_benchmark \
  //bench:encodings_benchmark //bench:torch_optimizer_benchmark //server:ps_server >&2
# Debian's Python has Debian's matplotlib and torch.
PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 bench/run.py "$@"
