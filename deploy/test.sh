#!/usr/bin/env bash
# From a bare Debian 12 to a judgement: installs what is missing, runs every test, then those that do
# not need libtorch twice more: under AddressSanitizer and UndefinedBehaviorSanitizer, compiled by
# clang with its analysis of the locks, and under ThreadSanitizer. At last it builds for CUDA and
# rehearses on the CPU what would run on a GPU (deploy/gpu_test.sh).
#
#   deploy/test.sh [--quick]        --quick: the tests only
#
# The last line is 'N passed, N failed'. Each test target counts once for each configuration it
# runs in; a target that does not compile, or whose locks the analysis objects to, has failed. Of the
# rehearsal each check counts; where pip cannot fetch torch it is left out, and the summary says so.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

quick=false
for argument in "$@"; do
  case "$argument" in
    --quick) quick=true ;;
    *) die "unknown option '$argument': expected --quick." ;;
  esac
done

"$TORCHPS_ROOT/deploy/setup.sh" test
cd "$TORCHPS_ROOT"

events="$(mktemp)"
trap 'rm -f "$events"' EXIT
passed=0
failed=0
summary=""

# The names of the test targets that carry none of the given tags.
test_targets() {
  local unwanted="$1"
  bazel query --noshow_progress --ui_event_filters=-info \
    "tests(//...) except attr('tags', '[\[ ]($unwanted)[,\]]', tests(//...))" 2>/dev/null
}

# How many test targets have passed, by Bazel's own account of its last run.
count_passed() {
  python3 - "$events" <<'PYTHON'
import json
import sys

passed = set()
for line in open(sys.argv[1], encoding="utf-8"):
    event = json.loads(line)
    if event.get("testSummary", {}).get("overallStatus") == "PASSED":
        passed.add(event["id"]["testSummary"]["label"])
print(len(passed))
PYTHON
}

note() {
  passed=$((passed + $2))
  failed=$((failed + $3))
  summary+="$(printf '  %-14s %4d passed, %4d failed, %4d s' "$1" "$2" "$3" "$4")"$'\n'
}

# run_tests NAME UNWANTED_TAGS OPTION...: all test targets in one configuration.
run_tests() {
  local name="$1" unwanted="$2" started=$SECONDS wanted good status=0
  shift 2
  say "tests: $name"
  if ! wanted="$(test_targets "$unwanted" | wc -l)" || [ "$wanted" = 0 ]; then
    say "$name: the list of tests cannot be read; 'bazel query //...' says why." >&2
    note "$name" 0 1 $((SECONDS - started))
    return
  fi
  : >"$events"
  bazel test --jobs="$(compile_jobs)" --keep_going --noshow_progress --curses=no \
    --build_event_json_file="$events" "$@" //... || status=$?
  good="$(count_passed)"
  # Bazel is the judge: where it is not content, at least one thing has failed.
  if [ "$status" != 0 ] && [ "$good" -ge "$wanted" ]; then
    wanted=$((good + 1))
  fi
  note "$name" "$good" $((wanted - good)) $((SECONDS - started))
}

# The bundle for a machine with a GPU, built and tried.
rehearse_gpu() {
  local started=$SECONDS status=0 counts
  say "GPU rehearsal"
  deploy/gpu_test.sh pack || status=$?
  if [ "$status" = 75 ]; then
    summary+="  GPU rehearsal  left out: pip cannot fetch torch"$'\n'
    return
  fi
  # Its last line is 'N passed, N failed'.
  [ "$status" != 0 ] || deploy/gpu_test.sh rehearse | tee "$events" || true
  counts="$(tail -n 1 "$events")"
  if [[ "$counts" =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    note "GPU rehearsal" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" $((SECONDS - started))
  else
    note "GPU rehearsal" 0 1 $((SECONDS - started))
  fi
}

# Whether no target of the first set needs one of the second; says on which way it does.
keeps_apart() {
  local way
  way="$(bazel query --noshow_progress --ui_event_filters=-info "somepath($1, $2)")" || return 1
  [ -z "$way" ] || {
    say "this should not be linked together:" "${way//$'\n'/ -> }"
    return 1
  }
}

# What the tree promises of itself: by its include lines, and by what is linked.
check_house() {
  local started=$SECONDS good=0
  deploy/check_house.py && good=$((good + 1))
  deploy/job_reference.py --check && good=$((good + 1))
  keeps_apart "//client/... + //server/... + //tools/... + //worker/loop/..." @libtorch//:torch &&
    good=$((good + 1))
  keeps_apart //server/coordinator/... \
    "//server/job/... + //server/store/... + //server/push_log/..." && good=$((good + 1))
  note house "$good" $((4 - good)) $((SECONDS - started))
}

# A program outside the tree, built with what deploy/install.sh installs.
check_install() {
  local started=$SECONDS good=0
  deploy/install_test.sh && good=1
  note install "$good" $((1 - good)) $((SECONDS - started))
}

# A Bazel workspace outside the tree.
check_workspace() {
  local started=$SECONDS good=0
  deploy/workspace_test.sh --quick && good=1
  note workspace "$good" $((1 - good)) $((SECONDS - started))
}

check_house
run_tests tests manual
check_install
check_workspace

if ! $quick; then
  without_libtorch=(--build_tag_filters=-libtorch --test_tag_filters=-libtorch)
  run_tests "asan, locks" "manual|libtorch" --config=asan "${without_libtorch[@]}"
  run_tests tsan "manual|libtorch" --config=tsan "${without_libtorch[@]}"
  rehearse_gpu
fi

printf '\n%s' "$summary"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
