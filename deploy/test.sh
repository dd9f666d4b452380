#!/usr/bin/env bash
# From a bare Debian 12 to a judgement: installs what is missing, runs every test, then those that do
# not need libtorch once more under AddressSanitizer and UndefinedBehaviorSanitizer, compiled by clang
# with its analysis of the locks, and those of them that have threads under ThreadSanitizer. At last it
# builds for CUDA and rehearses on the CPU what would run on a GPU (deploy/gpu_test.sh).
#
#   deploy/test.sh [--quick] [--minutes=N]
#       --quick: the tests only
#       --minutes: how long it may take; the sanitizers and the rehearsal end where that is over
#
# The last line is 'N passed, N failed'. Each test target counts once for each configuration it
# runs in; a target that does not compile, or whose locks the analysis objects to, has failed. Of the
# rehearsal each check counts; where pip cannot fetch torch it is left out, and the summary says so, as
# it says what there was no time for.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

quick=false
seconds=100000000
for argument in "$@"; do
  case "$argument" in
    --quick) quick=true ;;
    --minutes=?*)
      [[ "${argument#*=}" =~ ^[0-9]+$ ]] || die "$argument: expected a whole number of minutes."
      seconds=$((${argument#*=} * 60)) ;;
    *) die "unknown option '$argument': expected --quick or --minutes=N." ;;
  esac
done

"$TORCHPS_ROOT/deploy/setup.sh" test
cd "$TORCHPS_ROOT"

events="$(mktemp)"
targets="$(mktemp)"
trap 'rm -f "$events" "$targets"' EXIT
passed=0
failed=0
summary=""

# The test targets in a set of Bazel's query language.
test_targets() {
  bazel query --noshow_progress --ui_event_filters=-info "$1" 2>/dev/null
}

# tagged TAGS: the set of test targets that carry one of them, in that language.
tagged() {
  echo "attr('tags', '[\[ ]($1)[,\]]', tests(//...))"
}

# How many test targets have passed and how many have failed, by Bazel's own account of its last run.
count_judged() {
  python3 - "$events" <<'PYTHON'
import json
import sys

passed, failed = set(), set()
for line in open(sys.argv[1], encoding="utf-8"):
    try:
        event = json.loads(line)
    except ValueError:  # an interrupted run's last line
        continue
    status = event.get("testSummary", {}).get("overallStatus", "NO_STATUS")
    if status != "NO_STATUS":
        (passed if status == "PASSED" else failed).add(event["id"]["testSummary"]["label"])
print(len(passed), len(failed))
PYTHON
}

note() {
  passed=$((passed + $2))
  failed=$((failed + $3))
  summary+="$(printf '  %-14s %4d passed, %4d failed, %4d s' "$1" "$2" "$3" "$4")"$'\n'
}

left_out() { summary+="  $1  left out: $2"$'\n'; }

# Runs a command, but no longer than there is time; its exit code is then $time_is_up.
time_is_up=124
in_time() {
  local left=$((seconds - SECONDS))
  [ "$left" -gt 0 ] || return "$time_is_up"
  # Bazel's server ends what it runs when its client is interrupted.
  timeout -s INT -k 60 "$left" "$@"
}

# run_tests NAME SET BUILT OPTION...: the test targets of a set, in one configuration; BUILT is what is
# compiled in it beside them, or nothing.
run_tests() {
  local name="$1" set="$2" built="$3" started=$SECONDS wanted good bad status=0
  shift 3
  say "tests: $name"
  if ! test_targets "$set" >"$targets" || ! wanted="$(wc -l <"$targets")" || [ "$wanted" = 0 ]; then
    say "$name: the list of tests cannot be read; 'bazel query //...' says why." >&2
    note "$name" 0 1 $((SECONDS - started))
    return
  fi
  : >"$events"
  [ -z "$built" ] || echo "$built" >>"$targets"
  in_time bazel test --jobs="$(compile_jobs)" --keep_going --noshow_progress --curses=no \
    --build_event_json_file="$events" "$@" --target_pattern_file="$targets" || status=$?
  read -r good bad < <(count_judged)
  if [ "$status" = "$time_is_up" ] && [ "$name" != tests ]; then
    left_out "$name" "no time for $((wanted - good - bad)) of $wanted tests"
    wanted=$((good + bad))
    status=0
  fi
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
  in_time deploy/gpu_test.sh pack || status=$?
  case "$status" in
    75) left_out "GPU rehearsal" "pip cannot fetch torch" && return ;;
    "$time_is_up") left_out "GPU rehearsal" "no time to build it" && return ;;
  esac
  # Its last line is 'N passed, N failed'.
  [ "$status" != 0 ] || in_time deploy/gpu_test.sh rehearse | tee "$events" || true
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
run_tests tests "tests(//...) except $(tagged manual)" //...
check_install
check_workspace

if ! $quick; then
  without_libtorch="tests(//...) except $(tagged 'manual|libtorch')"
  run_tests "asan, locks" "$without_libtorch" //... --config=asan \
    --build_tag_filters=-libtorch --test_tag_filters=-libtorch
  # A race takes two threads: what shares something between them locks it, or is tagged.
  run_tests tsan "(rdeps(//..., //common:mutex) union $(tagged threads)) intersect ($without_libtorch)" \
    "" --config=tsan
  rehearse_gpu
fi

printf '\n%s' "$summary"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
