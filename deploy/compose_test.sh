#!/usr/bin/env bash
# Builds the images, runs the cluster of docker-compose.yml until its job is done, checks the report
# and takes everything down again.
#
#   deploy/compose_test.sh [--start-engine]
#
# Needs root. It builds on $TORCHPS_BASE_IMAGE, or on a Debian 12 made here by debootstrap. The
# variables of docker-compose.yml (TORCHPS_WORKERS, TORCHPS_JOB, ...) apply.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

limit_s=900  # for the job, once the images are there

if [ -z "${TORCHPS_BASE_IMAGE:-}" ]; then
  export TORCHPS_BASE_IMAGE=torchps-debian:12
  "$TORCHPS_ROOT/deploy/bare_debian.sh" --image="$TORCHPS_BASE_IMAGE" "$@"
fi
if docker compose version >/dev/null 2>&1; then
  compose=(docker compose)
elif command -v docker-compose >/dev/null; then
  compose=(docker-compose)
else
  die "neither 'docker compose' nor 'docker-compose' is here; deploy/setup.sh engine installs one."
fi

TORCHPS_REPORT_DIR="$(mktemp -d)"
export TORCHPS_REPORT_DIR
export TORCHPS_WORKERS="${TORCHPS_WORKERS:-3}"
compose+=(--project-name "torchps-test-$$" --file "$TORCHPS_ROOT/deploy/docker-compose.yml")
cleanup() {
  "${compose[@]}" down --volumes --timeout 5 >/dev/null 2>&1 || true
  rm -rf "$TORCHPS_REPORT_DIR"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# By `docker build` and not by compose, for the build needs this machine's network for apt.
for target in server worker; do
  say "building the image torchps-$target"
  docker build --network=host --build-arg BASE_IMAGE="$TORCHPS_BASE_IMAGE" \
    --file "$TORCHPS_ROOT/deploy/Dockerfile" --target "$target" --tag "torchps-$target" \
    "$TORCHPS_ROOT" >"$TORCHPS_REPORT_DIR/build.log" 2>&1 || {
    tail -n 30 "$TORCHPS_REPORT_DIR/build.log" >&2
    die "the image torchps-$target could not be built; its last lines are above."
  }
done
docker image ls --format '{{.Repository}} {{.Size}}' | sed -nE 's/^torchps-(server|worker) /  &/p'

say "starting 2 servers and $TORCHPS_WORKERS workers"
"${compose[@]}" up --detach --no-build 2>&1 | sed 's/^/  /'

report_container="$("${compose[@]}" ps --quiet report)"
status="$(timeout "$limit_s" docker wait "$report_container")" || status="none after $limit_s s"
if [ "$status" != 0 ]; then
  "${compose[@]}" logs --no-color --tail=15
  die "the report was not written (exit code $status); what the containers said is above."
fi
for worker in $("${compose[@]}" ps --quiet worker); do
  status="$(timeout 60 docker wait "$worker")" || status="none after 60 s"
  [ "$status" = 0 ] || {
    docker logs --tail=15 "$worker"
    die "a worker ended with exit code $status; what it said is above."
  }
done

docker logs "$report_container"
"$TORCHPS_ROOT/deploy/check_report.py" --servers=2 --workers="$TORCHPS_WORKERS" \
  "$TORCHPS_REPORT_DIR/report.json"
say "the cluster finished its job"
