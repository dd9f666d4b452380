#!/bin/sh
# --help of every program lists its flags, and a typo is answered with what was probably meant.
set -eu
says() {
  wanted=$1
  shift
  "$@" 2>&1 | grep -q -e "$wanted" || {
    echo "'$*' does not say '$wanted'"
    exit 1
  }
}
says --listen server/ps_server --help
says --local program/ps_worker --help
says --local examples/gan --help
says 'psctl run ' tools/psctl --help
for program in server/ps_server program/ps_worker examples/gan tools/psctl; do
  says '^torchps [0-9]*\.[0-9]*\.[0-9]*\( (commit [-0-9a-z]*)\)\?$' "$program" --version
done
says "there is no command 'top'; 'psctl help' lists them" tools/psctl top
says "did you mean 'status'" tools/psctl statis
says "there is no flag '--locl'; did you mean --local?" program/ps_worker --locl
says '--resume needs --dir=DIR' server/ps_server --resume

# A run that a missing file ends at once leaves nothing of its own.
psctl=$PWD/tools/psctl
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
