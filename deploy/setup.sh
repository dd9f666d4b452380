#!/usr/bin/env bash
# Installs the Debian 12 packages that torchps needs and that are missing; does nothing else.
#
#   deploy/setup.sh [build|test|engine|netns|bench|gpu]...     (default: build)
#
#   build    compile and run torchps        test     build, and what the tests and checks need
#   engine   a Docker engine with compose, and debootstrap for base images
#   netns    network namespaces
#   bench    what bench/run.sh compares with and draws with
#   gpu      what deploy/gpu_test.sh fetches a CUDA build of torch with, and packs
#
# It takes the machine's own apt sources, needs root or sudo only if something is missing, and
# is done in a fraction of a second if nothing is.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# One line for each package: its name, then what it is for.
BUILD_PACKAGES="
bazel-bootstrap        builds the project
bazel-platforms        rules that Bazel would otherwise download
bazel-rules-cc         rules that Bazel would otherwise download
bazel-rules-java       rules that Bazel would otherwise download
bazel-rules-proto      rules that Bazel would otherwise download
bazel-skylib           rules that Bazel would otherwise download
g++                    compiles the project
pkgconf                tells Bazel where libraries are
protobuf-compiler      generates C++ from .proto files
protobuf-compiler-grpc generates C++ from .proto files
libprotobuf-dev        messages
libgrpc++-dev          calls between servers and workers
libabsl-dev            strings, status, time, flags
libssl-dev             certificates
zlib1g-dev             compressed data sets
libcurl4-openssl-dev   downloads of data sets
nlohmann-json3-dev     reports
libisal-dev            checksums
libtorch-dev           models and gradients, in workers only
libopenblas0-pthread   matrix products; without it libtorch is many times slower
"
TEST_PACKAGES="
libgtest-dev           tests
libgmock-dev           tests
cmake                  builds a program outside the tree
libbenchmark-dev       benchmarks
clang-14               checks the lock annotations, sanitizes, fuzzes
libclang-rt-14-dev     AddressSanitizer and libFuzzer
python3                reads the results of the tests
python3-torch          opens what psctl exports
"
ENGINE_PACKAGES="
docker.io              builds and runs containers
docker-compose         runs the cluster of deploy/docker-compose.yml
debootstrap            makes a base image without a registry
iptables               lets containers reach the network
git                    makes the fresh clone that is tried in a container
python3                reads the report
"
NETNS_PACKAGES="
iproute2               makes network namespaces
python3                reads the report
"
BENCH_PACKAGES="
libbenchmark-dev       the optimizers' benchmark
python3-torch          gloo, to compare with
python3-matplotlib     plots
iproute2               makes a link of 1 Gbit/s
linux-perf             profiles
"
GPU_PACKAGES="
python3-pip            fetches torch
patchelf               makes programs that run from any folder
"

wanted=""
for group in "${@:-build}"; do
  case "$group" in
    build) wanted+="$BUILD_PACKAGES" ;;
    test) wanted+="$BUILD_PACKAGES$TEST_PACKAGES" ;;
    engine) wanted+="$ENGINE_PACKAGES" ;;
    netns) wanted+="$NETNS_PACKAGES" ;;
    bench) wanted+="$BENCH_PACKAGES" ;;
    gpu) wanted+="$GPU_PACKAGES" ;;
    *) die "unknown group '$group': expected build, test, engine, netns, bench or gpu." ;;
  esac
done
# A libtorch of one's own takes the place of Debian's.
if [ -n "${TORCHPS_LIBTORCH:-}" ]; then
  wanted="$(grep -vE '^(libtorch-dev|libopenblas0-pthread) ' <<<"$wanted")"
fi
wanted="$(awk 'NF && !seen[$1]++' <<<"$wanted")"

command -v dpkg-query >/dev/null ||
  die "this machine has no apt; install by hand: $(awk '{printf "%s ", $1}' <<<"$wanted")"

mapfile -t names < <(awk '{print $1}' <<<"$wanted")
installed="$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${names[@]}" 2>/dev/null |
  awk '$1 == "installed" {print $2}' || true)"
missing="$(awk 'NR == FNR {have[$1]; next} !($1 in have)' <(printf '%s\n' "$installed") - <<<"$wanted")"
[ -n "$missing" ] || exit 0

say "installing what is missing, from this machine's apt sources:"
awk '{name = $1; $1 = ""; printf "  %-23s%s\n", name, $0}' <<<"$missing"
mapfile -t names < <(awk '{print $1}' <<<"$missing")

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
started=$SECONDS
apt() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "'apt-get $*' failed; its last lines are above."
  }
}
apt update
apt install -y --no-install-recommends "${names[@]}"
say "installed in $((SECONDS - started)) s."
