#!/usr/bin/env bash
# Runs a new user's first steps on a bare Debian:
#
#   1. deploy/quickstart.sh; Python loads its model strictly and reproduces the report's accuracy
#   2. a program outside the tree, by CMake, by pkg-config and in a separate Bazel workspace
#   3. a GAN, REINFORCE, a regression with two inputs and fine-tuning, each compared with a plain torch loop
#   4. a run that is stopped and resumed with other settings, compared with torch's own loop
#   5. a run that diverges, which must not end as a success
#
#   deploy/first_hour_test.sh
#
# The last line is 'N passed, N failed'. Takes about 25 minutes on two cores, including the build.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$TORCHPS_ROOT/deploy/setup.sh" test
cd "$TORCHPS_ROOT"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# try WHAT COMMAND...
try() {
  local what="$1" started=$SECONDS
  shift
  if "$@"; then
    passed=$((passed + 1))
    say "passed: $what ($((SECONDS - started)) s)"
  else
    failed=$((failed + 1))
    say "FAILED: $what ($((SECONDS - started)) s)"
  fi
}

quickstart_model() {
  deploy/quickstart.sh --dir="$work/run" &&
    bazel build --noshow_progress --ui_event_filters=-info //tests/data/image:write_digits &&
    bazel-bin/tests/data/image/write_digits "$work" &&
    /usr/bin/python3 deploy/check_model.py "$work/run" "$work"
}

tests() {
  bazel test --jobs="$(compile_jobs)" --noshow_progress --curses=no "$@"
}

diverges() {
  local code=0
  bazel-bin/torchps/psctl run --job=deploy/jobs/convnet_digits.textproto --servers=1 --workers=2 \
    --dir="$work/diverged" --set optimizer.learning_rate=1e30 >"$work/diverged.log" 2>&1 || code=$?
  tail -n 3 "$work/diverged.log"
  [ "$code" = 8 ]
}

try "quickstart leaves a model that Python loads strictly" quickstart_model
try "a program outside the tree, by CMake and pkg-config" deploy/install_test.sh
try "a program in a Bazel workspace of its own" deploy/workspace_test.sh
try "four examples are as good as plain loops" tests --test_output=all //tests/examples:twins_test
try "stop, resume with other terms, and a Session, against torch's loop" \
  tests //tests/integration:torch_integration_test --test_filter='Resume*:Session*'
try "a run that diverges ends with code 8" diverges

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
