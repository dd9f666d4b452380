#!/bin/sh
# --help of each program lists its flags, and a misspelled flag gets a suggestion.
set -eu
says() {
  wanted=$1
  shift
  "$@" 2>&1 | grep -q -e "$wanted" || {
    echo "'$*' does not say '$wanted'"
    exit 1
  }
}
says --listen torchps/ps_server --help
says --local torchps/ps_worker --help
says --local examples/gan --help
says 'psctl run ' torchps/psctl --help
for program in torchps/ps_server torchps/ps_worker torchps/psctl; do
  says '^torchps [0-9]*\.[0-9]*\.[0-9]*\( (commit [-0-9a-z]*)\)\?; gRPC [0-9.]*' "$program" --version
done
says "there is no command 'top'; 'psctl help' lists them" torchps/psctl top
says "did you mean 'status'" torchps/psctl statis
says "there is no flag '--locl'; did you mean --local?" torchps/ps_worker --locl
says 'did you mean --set=optimizer.learning_rate=VALUE?' torchps/ps_worker --learning-rate=1
says 'did you mean --epochs? .psctl help run. lists' torchps/psctl run --epoch=3
says '--epochs=N' torchps/psctl run digits --help
says '--resume needs --dir=DIR' torchps/ps_server --resume
says "expected one of bash, zsh, fish" torchps/psctl completion tcsh
says '^.SS psctl run$' torchps/psctl man

# Completes the words like Bash: commands, flags, values and files.
torchps/psctl completion bash >"$TEST_TMPDIR/completion"
completes() {
  wanted=$1
  shift
  completed=$(bash -c '
    source "$1"
    COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
    function=$(complete -p "${2##*/}" | sed "s/.*-F \([^ ]*\).*/\1/")
    "$function" "$2"
    echo "${COMPREPLY[*]}"' bash "$TEST_TMPDIR/completion" "$@")
  [ "$completed" = "$wanted" ] || {
    echo "expected '$wanted' of '$*', got '$completed'"
    exit 1
  }
}
completes 'report' psctl repo
completes '--epochs=' psctl run --ep
completes 'adam adamw adagrad' psctl run --optimizer = ad
completes 'fish' psctl completion f
completes 'deploy' psctl run --job = dep
completes 'deploy' psctl run dep
completes '--advertise=' torchps/ps_server --adv

# A run that ends at once because a file is missing leaves no files.
psctl=$PWD/torchps/psctl
job=$PWD/deploy/jobs/convnet_mnist.textproto
mkdir "$TEST_TMPDIR/place"
cd "$TEST_TMPDIR/place"
if "$psctl" run --job="$job" --data=/nonexistent >said 2>&1; then
  echo "psctl run went well without data"
  exit 1
fi
grep -q '/nonexistent: expected' said && [ -z "$(ls runs)" ] || {
  cat said
  ls runs/*
  exit 1
}
