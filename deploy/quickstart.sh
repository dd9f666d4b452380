#!/usr/bin/env bash
# Trains a model on a bare Debian: installs missing packages, compiles servers, workers and psctl, and trains a small
# ConvNet on generated digits with two servers and three workers.
#
#   deploy/quickstart.sh [--help | options of psctl run]     e.g. --workers=5 --set training.batch_size=64
#
# With a straggler: worker 2 is four times slower, and the report shows how the workers shared the batches.
#
#   deploy/quickstart.sh --slow=2:4
#
# On MNIST, which is downloaded once into this machine's cache (TORCHPS_CACHE or ~/.cache/torchps):
#
#   deploy/quickstart.sh --job=deploy/jobs/convnet_mnist.textproto --download
#
# Options follow the script's defaults and thus override them. The model and the report are in a folder in runs/ of the
# current directory; the last lines name it.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case " $* " in
  *" --help "*)
    sed -n '2,/^$/s/^# \?//p' "${BASH_SOURCE[0]}"
    exit ;;
esac

"$TORCHPS_ROOT/deploy/setup.sh" build
here="$PWD"
cd "$TORCHPS_ROOT"

say "compiling with $(compile_jobs) jobs"
started=$SECONDS
bazel build --stamp --jobs="$(compile_jobs)" "${progress[@]}" \
  //torchps:ps_server //torchps:ps_worker //torchps:psctl
binaries="$(bazel info bazel-bin 2>/dev/null)"
say "compiled in $((SECONDS - started)) s"

cd "$here"
exec "$binaries/torchps/psctl" run \
  --job="$TORCHPS_ROOT/deploy/jobs/convnet_digits.textproto" --servers=2 --workers=3 "$@"
