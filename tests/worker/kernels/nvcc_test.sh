#!/usr/bin/env bash
# nvcc_test.sh PROGRAM
#
# PROGRAM is element_bits_main.cc, built by the build's compiler. Checks that nvcc's build prints
# the same hashes on the processor, and that nvcc compiles the kernels for two kinds of GPU. Without
# nvcc, the test is skipped.
set -euo pipefail
program="./$1"
here="$(dirname "$0")"

nvcc="$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)"
"$program" >"$TEST_TMPDIR/expected"
[ "$(wc -l <"$TEST_TMPDIR/expected")" = 5 ] || {
  echo "$program said:"
  cat "$TEST_TMPDIR/expected"
  exit 1
}
if [ ! -x "$nvcc" ]; then
  echo "skipped: there is no nvcc here"
  exit 0
fi

export TMPDIR="$TEST_TMPDIR"
options=(-std=c++17 -I. -x cu -fmad=false)
"$nvcc" "${options[@]}" -O2 -arch=sm_80 -Xcompiler -ffp-contract=off \
  "$here/element_bits_main.cc" -o "$TEST_TMPDIR/element_bits"
"$TEST_TMPDIR/element_bits" >"$TEST_TMPDIR/found"
diff "$TEST_TMPDIR/expected" "$TEST_TMPDIR/found" || {
  echo "the same text gives other bits by nvcc (>) than by the build's compiler (<)"
  exit 1
}

printf '#include "torchps/worker/kernels/%s_kernels.h"\n' encoding scan top_k >"$TEST_TMPDIR/kernels.cu"
for kind in sm_80 sm_90a; do
  said="$("$nvcc" "${options[@]}" -Werror all-warnings -Xptxas -v -arch="$kind" -cubin \
    "$TEST_TMPDIR/kernels.cu" -o "$TEST_TMPDIR/kernels.cubin" 2>&1)" || {
    echo "$said"
    echo "the kernels do not compile for $kind"
    exit 1
  }
  ! grep -E '[1-9][0-9]* bytes spill' <<<"$said" || {
    echo "a kernel has too many variables for $kind"
    exit 1
  }
done
