#!/usr/bin/env bash
# Fuzzes the parsers of untrusted bytes, from peers and files, with libFuzzer.
#
#   deploy/fuzz.sh [SECONDS [TARGET]...]        (default: 60 s each, all targets in tests/fuzz)
#
# Starts from the corpus in tests/fuzz/corpus. New inputs are kept in TORCHPS_FUZZ_DIR (default: a
# new directory). Prints the number of executions of each target; the last line is 'N executions, N
# failed'. Failing inputs are kept there and named.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds="${1:-60}"
# 0 means no limit to libFuzzer.
[[ "$seconds" =~ ^[1-9][0-9]*$ ]] || die "'$seconds': expected a number of seconds of at least 1."
shift || true
work="$(realpath -m "${TORCHPS_FUZZ_DIR:-$(mktemp -d)}")"
cd "$TORCHPS_ROOT"
targets=("$@")
if [ "${#targets[@]}" = 0 ]; then
  for corpus in tests/fuzz/corpus/*/; do targets+=("$(basename "$corpus")"); done
fi
# shellcheck disable=SC2206
bazel=(bazel ${TORCHPS_BAZEL_STARTUP:-})

labels=()
for target in "${targets[@]}"; do
  [ -d "tests/fuzz/corpus/$target" ] ||
    die "unknown target '$target': expected one of $(cd tests/fuzz/corpus && echo *)."
  labels+=("//tests/fuzz:${target}_fuzzer")
done
"${bazel[@]}" build --jobs="$(compile_jobs)" --noshow_progress --curses=no --config=fuzz \
  "${labels[@]}" || die "the fuzz targets do not compile."
binaries="$("${bazel[@]}" info --config=fuzz bazel-bin 2>/dev/null)/tests/fuzz"

executions=0
failed=0
for target in "${targets[@]}"; do
  mkdir -p "$work/$target"
  log="$work/$target.log"
  status=0
  "$binaries/${target}_fuzzer" -max_total_time="$seconds" -print_final_stats=1 -rss_limit_mb=2048 \
    -artifact_prefix="$work/$target-" "$work/$target" "tests/fuzz/corpus/$target" \
    >"$log" 2>&1 || status=$?
  count="$(awk '/stat::number_of_executed_units/ {print $2}' "$log")"
  rate="$(awk '/stat::average_exec_per_sec/ {print $2}' "$log")"
  executions=$((executions + ${count:-0}))
  if [ "$status" = 0 ]; then
    say "$target: ${count:-0} executions, ${rate:-0} in a second"
  else
    failed=$((failed + 1))
    say "$target: FAILED after ${count:-?} executions; see $log" >&2
    tail -n 40 "$log" >&2
  fi
done
say "new inputs are in $work"
echo "$executions executions, $failed failed"
[ "$failed" = 0 ]
