#!/usr/bin/env bash
# Builds the second workspace in examples/bazel, which has torchps as an external repository; its
# program trains. Compiles all of torchps once more: 5 to 10 minutes on two cores.
#
#   deploy/workspace_test.sh

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$TORCHPS_ROOT/deploy/setup.sh" build
cd "$TORCHPS_ROOT/examples/bazel"
bazel build --jobs="$(compile_jobs)" --noshow_progress --ui_event_filters=-info //:spirals
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
accuracy="$(bazel-bin/spirals --local --dir="$work/run" --set optimizer.learning_rate=0.2 \
  --set training.epochs=30 | sed -n 's/.* evaluation .* accuracy=\([0-9.]*\) .*/\1/p' | tail -n 1)"
say "examples/bazel: accuracy $accuracy, expected above 0.9"
awk -v accuracy="$accuracy" 'BEGIN { exit !(accuracy > 0.9) }'
