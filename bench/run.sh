#!/usr/bin/env bash
# Runs all measurements. bench/README.md lists the cases and explains the figures.
#
#   bench/run.sh [--case=NAME]... [--json=FILE] [--quick]
#
# Installs and builds what is needed. Environment: BAZEL_FLAGS are startup flags of bazel,
# BUILD_FLAGS are flags of "bazel build".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
deploy/setup.sh build bench
# shellcheck disable=SC2086  # both are lists of words
bazel ${BAZEL_FLAGS:-} build ${BUILD_FLAGS:-} --noshow_progress \
  //bench/data_plane //bench:slow_link //bench:train_step //bench:apply_kernels_benchmark \
  //bench:torch_optimizer_benchmark //torchps:ps_server >&2
# Debian's Python finds Debian's torch package.
PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 bench/run.py "$@"
