#!/usr/bin/env bash
# gpu_required_test.sh TEST...
#
# Each TEST contains parts that need a GPU; their names contain "Gpu". Without a usable GPU, the parts
# are skipped. They fail if the environment promises a GPU.
set -euo pipefail
export CUDA_VISIBLE_DEVICES=""
for test in "$@"; do
  name="$(basename "$test")"
  said="$(TORCHPS_REQUIRE_GPU=0 "./$test" --gtest_filter='*Gpu*')" || {
    echo "$said"
    echo "$name failed without a GPU although TORCHPS_REQUIRE_GPU=0"
    exit 1
  }
  grep -q "no usable GPU here" <<<"$said" || {
    echo "$name has no part that needs a GPU"
    exit 1
  }
  if said="$(TORCHPS_REQUIRE_GPU=1 "./$test" --gtest_filter='*Gpu*')"; then
    echo "$name passed without the GPU that was required"
    exit 1
  fi
  grep -q "no usable GPU, although TORCHPS_REQUIRE_GPU=1 is set" <<<"$said" || {
    echo "$said"
    echo "$name did not say why it failed"
    exit 1
  }
done
