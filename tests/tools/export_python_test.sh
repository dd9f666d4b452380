#!/usr/bin/env bash
# What psctl exports is opened by Python, and has the bytes that the checkpoint has.
#
#   export_python_test.sh SAMPLE_CHECKPOINT PSCTL SCRIPT
set -euo pipefail

dir="$(mktemp -d "$TEST_TMPDIR/export.XXXXXX")"
"$1" "$dir"
"$2" export "--dir=$dir/checkpoints" "--out=$dir/model.safetensors" "--out=$dir/model.pt"
# Debian's Python: another one that is first in the PATH has no torch.
PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 "$3" "$dir"
