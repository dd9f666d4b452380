#!/usr/bin/env bash
# On a bare Debian 12, installs missing packages, runs every test, and builds programs outside the tree.
#
#   deploy/test.sh [--all] [--minutes=N]
#       --all: then runs the tests that do not need libtorch under AddressSanitizer and
#              UndefinedBehaviorSanitizer, compiled by clang with lock analysis, and those with threads
#              under ThreadSanitizer; then builds for CUDA and rehearses the GPU stages on the CPU
#              (deploy/gpu_test.sh)
#       --minutes: time limit; after it, the parts of --all are skipped
#
# The last line is 'N passed, N failed'. Each test target counts once per configuration. A target fails
# if it does not compile or the lock analysis reports an error. Each check of the rehearsal counts. The
# summary lists skipped parts: the rehearsal if pip cannot fetch torch, and parts over the time limit.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

all=false
seconds=100000000
for argument in "$@"; do
  case "$argument" in
    --all) all=true ;;
    --minutes=?*)
      [[ "${argument#*=}" =~ ^[0-9]+$ ]] || die "$argument: expected a whole number of minutes."
      seconds=$((${argument#*=} * 60)) ;;
    *) die "unknown option '$argument': expected --all or --minutes=N." ;;
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

# Prints the test targets of a Bazel query.
test_targets() {
  bazel query --noshow_progress --ui_event_filters=-info "$1" 2>/dev/null
}

# tagged TAGS: prints a Bazel query for the test targets with one of the tags.
tagged() {
  echo "attr('tags', '[\[ ]($1)[,\]]', tests(//...))"
}

# Prints a Bazel query for the targets with a test source that uses threads: it includes a header about
# threads or gRPC, or a helper that starts threads. A test whose threads start elsewhere has the tag
# 'threads'.
threaded() {
  local headers='<(thread|atomic)>|"(torchps/common/mutex|torchps/server/server|.*grpc.*|tests/.*(eventually|job_harness|program|fake_.*))\.h"'
  local sources direct
  sources="$(find tests -name '*.cc' -exec grep -lE "^#include ($headers)" {} + | sed -E 's|(.*)/|//\1:|')"
  direct="rdeps(//..., set($sources), 1)"
  # Between most tests and their sources is a rule of third_party/cc_library.bzl.
  echo "$direct union rdeps(//..., kind(_all_sources, $direct), 1) union $(tagged threads)"
}

# Prints the numbers of passed and failed test targets from the events of Bazel's last run.
count_judged() {
  python3 - "$events" <<'PYTHON'
import json
import sys

passed, failed = set(), set()
for line in open(sys.argv[1], encoding="utf-8"):
    try:
        event = json.loads(line)
    except ValueError:  # the last line of an interrupted run
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

# Runs a command within the remaining time; returns $time_is_up if it takes longer.
time_is_up=124
in_time() {
  local left=$((seconds - SECONDS))
  [ "$left" -gt 0 ] || return "$time_is_up"
  # On SIGINT to its client, Bazel's server stops its actions.
  timeout -s INT -k 60 "$left" "$@"
}

# run_tests NAME SET BUILT OPTION...: runs the test targets of a query in one configuration. BUILT are
# additional targets to compile; may be empty.
run_tests() {
  local name="$1" set="$2" built="$3" started=$SECONDS wanted good bad status=0
  shift 3
  say "tests: $name"
  if ! test_targets "$set" >"$targets" || ! wanted="$(wc -l <"$targets")" || [ "$wanted" = 0 ]; then
    say "$name: the list of tests cannot be read; 'bazel query //...' shows the reason." >&2
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
  # If Bazel reports an error, at least one target counts as failed.
  if [ "$status" != 0 ] && [ "$good" -ge "$wanted" ]; then
    wanted=$((good + 1))
  fi
  note "$name" "$good" $((wanted - good)) $((SECONDS - started))
}

# Builds and rehearses the bundle for a machine with a GPU.
rehearse_gpu() {
  local started=$SECONDS status=0 counts
  say "GPU rehearsal"
  in_time deploy/gpu_test.sh pack || status=$?
  case "$status" in
    75) left_out "GPU rehearsal" "pip cannot fetch torch" && return ;;
    "$time_is_up") left_out "GPU rehearsal" "no time to build it" && return ;;
  esac
  # The last line of the rehearsal is 'N passed, N failed'.
  [ "$status" != 0 ] || in_time deploy/gpu_test.sh rehearse | tee "$events" || true
  counts="$(tail -n 1 "$events")"
  if [[ "$counts" =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    note "GPU rehearsal" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" $((SECONDS - started))
  else
    note "GPU rehearsal" 0 1 $((SECONDS - started))
  fi
}

# Succeeds if no target of the first query depends on one of the second; otherwise prints the dependency
# path.
keeps_apart() {
  local way
  way="$(bazel query --noshow_progress --ui_event_filters=-info "somepath($1, $2)")" || return 1
  [ -z "$way" ] || {
    say "these must not be linked together:" "${way//$'\n'/ -> }"
    return 1
  }
}

# Checks the architecture: include lines and link dependencies.
check_house() {
  local started=$SECONDS good=0
  deploy/check_house.py && good=$((good + 1))
  deploy/job_reference.py --check && good=$((good + 1))
  deploy/check_cmake.py && good=$((good + 1))
  keeps_apart "//torchps:ps_server + //torchps:psctl + //torchps/client/... + //torchps/worker/loop/..." \
    @libtorch//:torch && good=$((good + 1))
  keeps_apart //torchps/server/coordinator/... \
    "//torchps/server/job/... + //torchps/server/store/... + //torchps/server/push_log/..." && good=$((good + 1))
  # Sanitizers compile everything that their tests need, and libtorch doubles that.
  keeps_apart "tests(//...) except $(tagged 'manual|libtorch')" @libtorch//:torch &&
    good=$((good + 1))
  note house "$good" $((6 - good)) $((SECONDS - started))
}

# Builds the documentation site.
check_docs() {
  local started=$SECONDS good=0 site
  site="$(mktemp -d)"
  deploy/docs.sh "$site" && good=1
  rm -rf "$site"
  note docs "$good" $((1 - good)) $((SECONDS - started))
}

# Builds a program outside the tree with the result of deploy/install.sh.
check_install() {
  local started=$SECONDS good=0
  deploy/install_test.sh && good=1
  note install "$good" $((1 - good)) $((SECONDS - started))
}

# Builds a Bazel workspace outside the tree.
check_workspace() {
  local started=$SECONDS good=0
  deploy/workspace_test.sh --quick && good=1
  note workspace "$good" $((1 - good)) $((SECONDS - started))
}

check_house
check_docs
run_tests tests "tests(//...) except $(tagged manual)" //...
check_install
check_workspace

if $all; then
  without_libtorch="tests(//...) except $(tagged 'manual|libtorch')"
  run_tests "asan, locks" "$without_libtorch" //... --config=asan \
    --build_tag_filters=-libtorch --test_tag_filters=-libtorch
  run_tests tsan "($(threaded)) intersect ($without_libtorch)" "" --config=tsan
  rehearse_gpu
fi

printf '\n%s' "$summary"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
