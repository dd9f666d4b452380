#!/usr/bin/env bash
# Tests torchps on a machine with a GPU and measures its speed there.
#
#   deploy/gpu_test.sh pack [--torch=2.11.0] [--out=.gpu.tar.gz] [--data=DIR]
#       On a Debian 12: fetches this torch version with pip, without its dependencies, builds with
#       --config=cuda against it and makes a bundle, one file: programs, tests, the libraries they need
#       except torch, CUDA and libc, and the MNIST files in DIR.
#   deploy/gpu_test.sh run [--bundle=.gpu.tar.gz] [--out=.gpu_out] [--seconds=560] [--only=STAGE,...]
#                          [--leak_seconds=40]
#       On any Linux with an NVIDIA driver and a python3 with the same torch version. Needs only this
#       folder (deploy/) and the bundle, without a network.
#   deploy/gpu_test.sh rehearse [--bundle=.gpu.tar.gz] [--out=.gpu_out] [--only=STAGE,...]
#                          [--leak_seconds=20]
#       On the build machine: the same on the CPU, in an environment with only the bundle, torch's
#       libraries and stand-ins for CUDA's.
#
# pack exits with 75 if pip cannot fetch the wheels. The last line of run and rehearse is 'N passed, N
# failed'. OUT/gpu.json contains the figures, OUT/log the output of each program. --only selects stages:
#
#   facts       driver, bus speed, ps_worker --devices, doctor
#   unit        tests of the device code; a missing GPU fails them
#   same        after 100 steps, parameters of a worker and of a plain loop differ by at most 1e-5
#   train       digits and MNIST with one and two workers, on GPU and CPU: 97.5 %
#   speed       a step of ResNet-18 and a transformer, alone and as a worker
#   encodings, members, precision
#               jobs in each encoding; with replicas and stages; in TF32, BFLOAT16, FLOAT16
#   faults      20 s of psctl drill, missing devices, too little GPU memory
#   leak        memory of worker and GPU during 40 s (--leak_seconds=N)

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cannot_fetch=75  # exit code if a wheel is unavailable
largest_mib=60  # bundle size limit, because transfers to a borrowed machine are limited
programs=(//torchps:ps_worker //torchps:ps_server //torchps:psctl //bench:train_step //bench:device_copy)
tests=(//tests/program:train_main_test
  //tests/worker:device_test //tests/worker:flat_model_test //tests/worker:torch_error_test
  //tests/worker:training_test //tests/worker/cuda:cuda_batch_uploader_test //tests/worker/cuda:cuda_link_test
  //tests/worker/cuda:device_encoder_test //tests/worker/cuda:cuda_finite_check_test
  //tests/worker/cuda:device_scan_test
  //tests/worker/kernels:gradient_kernels_test //tests/worker/replicas:local_group_test
  //tests/integration:equivalence_test)

command="${1:-}"
[ $# = 0 ] || shift
bundle=.gpu.tar.gz
out=.gpu_out
torch=2.11.0
data=""
passed_on=()
for argument in "$@"; do
  case "$command $argument" in
    "pack --torch="?*) torch="${argument#*=}" ;;
    "pack --out="?* | "run --bundle="?* | "rehearse --bundle="?*) bundle="${argument#*=}" ;;
    "pack --data="?*) data="${argument#*=}" ;;
    "run --out="?* | "rehearse --out="?*) out="${argument#*=}" ;;
    "run --seconds="?* | "run --only="?* | "rehearse --only="?* | \
      "run --leak_seconds="?* | "rehearse --leak_seconds="?*)
      passed_on+=("$argument") ;;
    *) die "unknown option '$argument' of '$command'; the head of this file lists them." ;;
  esac
done

cache="${XDG_CACHE_HOME:-$HOME/.cache}/torchps"

# fetch REQUIREMENT: downloads the wheel for a recent Python into the current folder.
fetch() {
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version 3.12 --implementation cp --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 "$1" || {
    say "pip cannot fetch $1." >&2
    exit "$cannot_fetch"
  }
}

# unpack PATTERN...: extracts the files of all wheels here that match a pattern, and removes the wheels.
unpack() {
  python3 - "$@" <<'PYTHON'
import fnmatch, glob, os, sys, zipfile
for wheel in glob.glob("*.whl"):
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if any(fnmatch.fnmatch(name, pattern) for pattern in sys.argv[1:]):
                files.extract(name)
    os.remove(wheel)
PYTHON
}

# Fetches into $cache/torch-VERSION the headers and libraries of torch and the CUDA runtime library, which a
# program linked with torch needs to start. Python and the rest of CUDA are not needed.
fetch_torch() {
  local folder="$cache/torch-$torch" cuda
  [ ! -f "$folder/complete" ] || return 0
  say "fetching torch $torch (half a gigabyte)"
  rm -rf "$folder"
  mkdir -p "$folder"
  (
    cd "$folder"
    fetch "torch==$torch"
    unpack 'torch/include/*' 'torch/lib/lib*.so*' torch/version.py
    rm -f torch/lib/libtorch_python.so
    cuda="$(sed -nE "s/^cuda: .*= '([0-9.]+)'$/\1/p" torch/version.py)"
    [ -n "$cuda" ] || die "pip's torch $torch is not a CUDA build."
    case "$cuda" in
      1[0-2].*) fetch "nvidia-cuda-runtime-cu${cuda%%.*}==$cuda.*" ;;
      *) fetch "nvidia-cuda-runtime==$cuda.*" ;;
    esac
    unpack 'nvidia/*/lib/libcudart.so*'
  )
  touch "$folder/complete"
}

# Sets `libraries` to the folders of torch's and CUDA's runtime libraries.
find_libraries() {
  local cudart
  cudart="$(ls -d "$cache/torch-$torch"/nvidia/*/lib)"
  libraries=("$cache/torch-$torch/torch/lib" "$cudart")
}

pack() {
  "$TORCHPS_ROOT/deploy/setup.sh" build gpu
  fetch_torch
  local torch_root="$cache/torch-$torch/torch" binaries label needed kib
  export TORCHPS_LIBTORCH="$torch_root"
  cd "$TORCHPS_ROOT"
  local started=$SECONDS
  local bazel=(--config=cuda --jobs="$(compile_jobs)" --noshow_progress --ui_event_filters=-info)
  say "building against torch $torch"
  bazel build "${bazel[@]}" "${programs[@]}" "${tests[@]}"
  bazel test "${bazel[@]}" --test_summary=none //tests/third_party/...
  binaries="$(bazel info "${bazel[@]}" bazel-bin 2>/dev/null)"
  say "built in $((SECONDS - started)) s"

  mkdir -p "$unpacked"/{bin,lib,jobs}
  for label in "${programs[@]}" "${tests[@]}"; do
    label="${label#//}"
    install -m 755 "$binaries/${label/://}" "$unpacked/bin/${label##*:}"
  done
  strip "$unpacked"/bin/*
  # The programs then use LD_LIBRARY_PATH in any folder.
  for label in "$unpacked"/bin/*; do patchelf --remove-rpath "$label"; done

  find_libraries
  python3 "$TORCHPS_ROOT/deploy/gpu/stand_ins.py" --out="$work" "${libraries[@]}" >/dev/null
  LD_LIBRARY_PATH="$(IFS=:; echo "${libraries[*]}:$work")" ldd "$unpacked"/bin/* |
    awk -v torch="$cache/" -v work="$work/" '
      $2 == "=>" && $3 == "not" {print "missing " $1 > "/dev/stderr"; exit 1}
      $2 == "=>" && index($3, torch) != 1 && index($3, work) != 1 &&
        $1 !~ /^(libc|libm|libdl|librt|libpthread|libresolv|libutil|libstdc\+\+|libgcc_s)\.so/ {print $3}' |
    sort -u | xargs cp -L -t "$unpacked/lib"

  cp "$TORCHPS_ROOT"/deploy/jobs/*.textproto "$unpacked/jobs"
  if [ -n "$data" ]; then
    mkdir -p "$unpacked/data/mnist"
    cp "$data"/*-ubyte* "$unpacked/data/mnist"
  fi
  # The newest GLIBC_ version that the programs and Debian's libraries need.
  needed="$(objdump -T "$unpacked"/bin/* "$unpacked"/lib/* | grep -oP '\(GLIBC_\K[0-9.]+(?=\))' |
    sort -uV | tail -n 1)"
  cat >"$unpacked/VERSION.json" <<JSON
{
  "commit": "$(git -C "$TORCHPS_ROOT" describe --always --dirty 2>/dev/null || echo unknown)",
  "torch": "$(sed -nE "s/^__version__ = '(.*)'$/\1/p" "$torch_root/version.py")",
  "glibc": "$needed"
}
JSON
  cd "$here"
  tar -C "$unpacked" -czf "$bundle" .
  kib="$(du -k --apparent-size "$bundle" | cut -f 1)"
  [ "$kib" -le $((largest_mib * 1024)) ] ||
    die "the bundle $bundle takes $((kib / 1024)) MiB, more than the limit of $largest_mib MiB."
  say "packed $bundle: $((kib / 1024)) MiB, torch $torch, for glibc $needed or newer"
}

unpack_bundle() {
  [ -f "$bundle" ] || die "there is no bundle $bundle; '$0 pack' makes one."
  mkdir "$unpacked"
  tar -C "$unpacked" -xzf "$bundle"
}

rehearse() {
  unpack_bundle
  torch="$(sed -nE 's/.*"torch": "([^"+]+).*/\1/p' "$unpacked/VERSION.json")"
  [ -f "$cache/torch-$torch/complete" ] || die "torch $torch is not in $cache; '$0 pack' fetches it."
  find_libraries
  python3 "$TORCHPS_ROOT/deploy/gpu/stand_ins.py" --out="$work/stand_ins" "${libraries[@]}"
  libraries+=("$work/stand_ins")
  env -i PATH=/usr/bin:/bin HOME="$work" TMPDIR="$work" /usr/bin/python3 -B \
    "$TORCHPS_ROOT/deploy/gpu/run.py" --bundle="$unpacked" --out="$out" --device=cpu \
    --torch_lib="$(IFS=:; echo "${libraries[*]}")" "${passed_on[@]}"
}

here="$PWD"
work="$(mktemp -d)"
unpacked="$work/bundle"
trap 'rm -rf "$work"' EXIT
case "$command" in
  pack) pack ;;
  run)
    unpack_bundle
    python3 -B "$TORCHPS_ROOT/deploy/gpu/run.py" --bundle="$unpacked" --out="$out" "${passed_on[@]}"
    ;;
  rehearse) rehearse ;;
  *) die "expected pack, run or rehearse, got '$command'; the head of this file explains them." ;;
esac
