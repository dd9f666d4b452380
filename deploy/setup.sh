#!/usr/bin/env bash
# Installs missing packages that torchps needs, on Debian 12, 13 and testing, and on Ubuntu, which uses the
# same package names.
#
#   deploy/setup.sh [build|test|package|engine|netns|bench|gpu|docs]...     (default: build)
#
#   build    compile and run torchps        test     build, and packages for tests and checks
#   package  packages for deploy/package.sh
#   engine   a Docker engine with compose, and debootstrap for base images
#   netns    network namespaces
#   bench    packages for the comparisons and plots of bench/run.sh
#   gpu      packages that deploy/gpu_test.sh uses to fetch a CUDA build of torch and to pack it
#   docs     packages that deploy/docs.sh uses to build the documentation site
#
# Uses the machine's apt sources. Needs root or sudo only if something is missing, and takes a second
# otherwise. If apt lacks libtorch-dev (Ubuntu 24.04), installs pip's torch into .cache/torch, where
# third_party/libtorch.bzl finds it.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# One line per package: the name and the purpose. A name with ? is skipped if apt lacks it.
BUILD_PACKAGES="
bazel-bootstrap        builds the project
bazel-platforms        rules that Bazel would otherwise download
bazel-rules-cc         rules that Bazel would otherwise download
bazel-rules-java       rules that Bazel would otherwise download
bazel-rules-proto      rules that Bazel would otherwise download
bazel-skylib           rules that Bazel would otherwise download
bazel-rules-license?   rules that Bazel 7 would otherwise download
bazel-rules-python?    rules that Bazel 7 would otherwise download
g++                    compiles the project
pkgconf                finds libraries for Bazel
protobuf-compiler      generates C++ from .proto files
protobuf-compiler-grpc generates C++ from .proto files
libprotobuf-dev        messages
libgrpc++-dev          calls between servers and workers
libabsl-dev            strings, status, time, flags
libssl-dev             certificates
zlib1g-dev             compressed data sets
libcurl4-openssl-dev   downloads of data sets
libjpeg-dev            image data sets
libpng-dev             image data sets
nlohmann-json3-dev     reports
libyaml-dev            job files in YAML and JSON
libisal-dev            checksums
libtorch-dev?          models and gradients, in workers only
libopenblas0-pthread   matrix products; without it libtorch is many times slower
"
TEST_PACKAGES="
libgtest-dev           tests
libgmock-dev           tests
cmake                  builds a program outside the tree
libbenchmark-dev       benchmarks
clang                  checks the lock annotations, builds for sanitizers and fuzzing
libclang-rt-dev        AddressSanitizer and libFuzzer
python3                reads the results of the tests
python3-torch?         loads trained models
"
PACKAGE_PACKAGES="
dpkg-dev               finds the Debian packages that programs depend on
patchelf               lets programs find libraries in their own folder
python3                collects libraries and licences
"
ENGINE_PACKAGES="
docker.io              builds and runs containers
docker-compose         runs the cluster of deploy/docker-compose.yml
debootstrap            makes a base image without a registry
iptables               lets containers reach the network
git                    makes the fresh clone for the container
python3                reads the report
"
NETNS_PACKAGES="
iproute2               makes network namespaces
dnsmasq-base           answers DNS queries in deploy/netns_names_test.sh
python3                reads the report
"
BENCH_PACKAGES="
libbenchmark-dev       the optimizers' benchmark
python3-torch          gloo, for comparison
python3-matplotlib     plots
iproute2               makes a link of 1 Gbit/s
linux-perf             profiles
"
GPU_PACKAGES="
python3-pip            fetches torch
patchelf               makes programs that run from any folder
"
DOCS_PACKAGES="
mkdocs                 makes the site from the pages
mkdocs-material        the site's theme
doxygen                makes the C++ reference from the public headers
python3                checks the links
"

wanted=""
for group in "${@:-build}"; do
  case "$group" in
    build) wanted+="$BUILD_PACKAGES" ;;
    test) wanted+="$BUILD_PACKAGES$TEST_PACKAGES" ;;
    package) wanted+="$PACKAGE_PACKAGES" ;;
    engine) wanted+="$ENGINE_PACKAGES" ;;
    netns) wanted+="$NETNS_PACKAGES" ;;
    bench) wanted+="$BENCH_PACKAGES" ;;
    gpu) wanted+="$GPU_PACKAGES" ;;
    docs) wanted+="$DOCS_PACKAGES" ;;
    *) die "unknown group '$group': expected build, test, package, engine, netns, bench, gpu or docs." ;;
  esac
done
# TORCHPS_LIBTORCH replaces Debian's libtorch.
if [ -n "${TORCHPS_LIBTORCH:-}" ]; then
  wanted="$(grep -vE '^(libtorch-dev[?]|libopenblas0-pthread) ' <<<"$wanted")"
fi
wanted="$(awk 'NF && !seen[$1]++' <<<"$wanted")"

command -v dpkg-query >/dev/null ||
  die "this machine has no apt; install by hand: $(awk '{printf "%s ", $1}' <<<"$wanted")"

mapfile -t names < <(awk '{sub(/[?]$/, "", $1); print $1}' <<<"$wanted")
installed="$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${names[@]}" 2>/dev/null |
  awk '$1 == "installed" {print $2}' || true)"
missing="$(awk 'NR == FNR {have[$1]; next} {name = $1; sub(/[?]$/, "", name)} !(name in have)' \
  <(printf '%s\n' "$installed") - <<<"$wanted")"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
log="$work/log"
started=$SECONDS
apt() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "'apt-get $*' failed; its last lines are above."
  }
}

if grep -qE '^[^ ?]+( |$)' <<<"$missing"; then
  say "updating the package lists of this machine's apt sources"
  apt update
fi
# The optional packages that apt provides.
mapfile -t names < <(awk '$1 ~ /[?]$/ {sub(/[?]$/, "", $1); print $1}' <<<"$missing")
known=""
[ "${#names[@]}" = 0 ] || known="$(apt-cache policy "${names[@]}" |
  awk '/^[^ ].*:$/ {name = substr($1, 1, length($1) - 1)} $1 == "Candidate:" && $2 != "(none)" {print name}')"
missing="$(awk 'NR == FNR {known[$1]; next}
  !NF || (sub(/[?]$/, "", $1) && !($1 in known)) {next} {print}' <(printf '%s\n' "$known") - <<<"$missing")"

if [ -n "$missing" ]; then
  say "installing missing packages from this machine's apt sources:"
  awk '{name = $1; $1 = ""; printf "  %-23s%s\n", name, $0}' <<<"$missing"
  mapfile -t names < <(awk '{print $1}' <<<"$missing")
  apt install -y --no-install-recommends "${names[@]}"
  say "installed in $((SECONDS - started)) s."
fi

# pip's torch, if no other is installed.
has_torch() { compgen -G "$TORCHPS_ROOT/.cache/torch/lib/python3*/site-packages/torch/lib/libtorch_cpu.so" >/dev/null; }
if grep -q '^libtorch-dev' <<<"$wanted" && [ -z "${TORCHPS_PYTHON:-}" ] &&
  [ ! -e /usr/include/torch/csrc/api/include/torch/torch.h ] && ! has_torch; then
  say "apt has no libtorch-dev: installing pip's torch into .cache/torch"
  python3 -c 'import ensurepip' 2>/dev/null || apt install -y --no-install-recommends python3-venv
  python3 -m venv "$TORCHPS_ROOT/.cache/torch"
  # PyPI's builds are for CUDA and download 4 GB. Set PIP_INDEX_URL to use an index of CPU builds.
  pip() { "$TORCHPS_ROOT/.cache/torch/bin/python3" -m pip --quiet --disable-pip-version-check install "$@"; }
  pip torch >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "pip cannot install torch; its last lines are above. Set TORCHPS_LIBTORCH to an unpacked libtorch instead."
  }
fi

# Prints flags that this machine's Bazel and libtorch need in addition to .bazelrc, which imports them.
release_flags() {
  local include all_torch
  # Bazel 7 and 8 read WORKSPACE only with these flags.
  if [[ "$(cd / && bazel --version 2>/dev/null)" =~ ^bazel\ [78]\. ]]; then
    echo 'common --noenable_bzlmod --enable_workspace'
  fi
  # Same order as in third_party/libtorch.bzl.
  for include in ${TORCHPS_LIBTORCH:+"$TORCHPS_LIBTORCH/include"} /usr/include \
    "$TORCHPS_ROOT"/.cache/torch/lib/python3*/site-packages/torch/include; do
    all_torch="$include/torch/csrc/api/include/torch/all.h"
    [ -e "$all_torch" ] || continue
    if grep -q '^#error C++20' "$all_torch"; then
      sed -n 's/^build:cuda \(--per_file_copt=.*@-std=c++20\)$/build \1/p' "$TORCHPS_ROOT/.bazelrc"
    fi
    break
  done
}
if grep -q '^bazel-bootstrap' <<<"$wanted"; then
  flags="$(release_flags)"
  place="$TORCHPS_ROOT/.cache/release.bazelrc"
  if [ -n "$flags" ]; then
    mkdir -p "$TORCHPS_ROOT/.cache"
    printf '# Written by deploy/setup.sh for this release.\n%s\n' "$flags" >"$place"
  else
    rm -f "$place"
  fi
fi
