#!/usr/bin/env bash
# Python reads the files that psctl exports, with the same bytes as the checkpoint.
#
#   export_python_test.sh SAMPLE_CHECKPOINT PSCTL SCRIPT
set -euo pipefail

dir="$(mktemp -d "$TEST_TMPDIR/export.XXXXXX")"
"$1" "$dir"
"$2" export "--dir=$dir/checkpoints" "--out=$dir/model.safetensors"
exec python3 "$3" "$dir"
