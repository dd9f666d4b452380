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
says "there is no command 'top'; 'psctl help' lists them" tools/psctl top
says "did you mean 'status'" tools/psctl statis
says "there is no flag '--locl'; did you mean --local?" program/ps_worker --locl
says '--resume needs --dir=DIR' server/ps_server --resume
