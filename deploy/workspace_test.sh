#!/usr/bin/env bash
# Builds the second workspace in examples/bazel, which uses torchps as an external repository, and
# trains with its program. Compiles all of torchps again: 5 to 10 minutes on two cores.
#
#   deploy/workspace_test.sh [--quick]
#
#   --quick   analyse everything, and compile only the program and generated headers: under a minute

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

quick=false
for argument in "$@"; do
  case "$argument" in
    --quick) quick=true ;;
    *) die "unknown option '$argument': expected --quick." ;;
  esac
done

"$TORCHPS_ROOT/deploy/setup.sh" build
cd "$TORCHPS_ROOT/examples/bazel"
options=(--jobs="$(compile_jobs)" --noshow_progress --ui_event_filters=-info)
if $quick; then
  status=0
  bazel build "${options[@]}" --nobuild //:spirals &&
    bazel build "${options[@]}" --output_groups=compilation_outputs //:spirals || status=$?
  # This workspace started a separate Bazel server; the tests need the memory.
  bazel shutdown
  [ "$status" = 0 ] || die "examples/bazel does not build outside the tree."
  say "examples/bazel: analysed, and its program compiled"
  exit 0
fi
bazel build "${options[@]}" //:spirals
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
accuracy="$(bazel-bin/spirals --local --dir="$work/run" --set optimizer.learning_rate=0.2 \
  --set training.epochs=30 | sed -n 's/.* evaluation .* accuracy=\([0-9.]*\) .*/\1/p' | tail -n 1)"
say "examples/bazel: accuracy $accuracy, expected above 0.9"
awk -v accuracy="$accuracy" 'BEGIN { exit !(accuracy > 0.9) }'
