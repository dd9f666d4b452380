# Functions that run the cluster of docker-compose.yml. Sourced after lib.sh. Needs root.
# shellcheck shell=bash

limit_s=900  # for the job, after the images are built

# begin_compose FILE... -- [--built] [--start-engine]: builds the images unless --built is set, and sets $compose,
# which uses a separate project of these files, and the folder $work. Both are removed when the script ends.
begin_compose() {
  local file build=true files=()
  local -a engine=()
  while [ "$1" != -- ]; do
    files+=(--file "$TORCHPS_ROOT/deploy/$1")
    shift
  done
  shift
  for file in "$@"; do
    case "$file" in
      --built) build=false ;;
      --start-engine) engine=(--start-engine) ;;
      *) die "unknown option '$file': expected --built or --start-engine." ;;
    esac
  done

  if $build && [ -z "${TORCHPS_BASE_IMAGE:-}" ]; then
    export TORCHPS_BASE_IMAGE=torchps-debian:12
    "$TORCHPS_ROOT/deploy/bare_debian.sh" --image="$TORCHPS_BASE_IMAGE" "${engine[@]}"
  fi
  if docker compose version >/dev/null 2>&1; then
    compose=(docker compose)
  elif command -v docker-compose >/dev/null; then
    compose=(docker-compose)
  else
    die "neither 'docker compose' nor 'docker-compose' is installed; deploy/setup.sh engine installs one."
  fi
  compose+=(--project-name "torchps-test-$$" "${files[@]}")
  work="$(mktemp -d)"
  export TORCHPS_REPORT_DIR="$work/report"
  mkdir "$TORCHPS_REPORT_DIR"
  export TORCHPS_WORKERS="${TORCHPS_WORKERS:-3}"
  trap end_compose EXIT
  trap 'exit 130' INT TERM
  if $build; then
    build_image server
    build_image worker
  fi
  docker image ls --format '{{.Repository}} {{.Size}}' | sed -nE 's/^torchps-(server|worker) /  &/p'
}

end_compose() {
  "${compose[@]}" down --volumes --timeout 5 >/dev/null 2>&1 || true
  rm -rf "$work"
}

# Uses `docker build`, because the build needs this machine's network for apt.
build_image() {
  say "building the image torchps-$1"
  docker build --network=host --build-arg BASE_IMAGE="$TORCHPS_BASE_IMAGE" \
    --file "$TORCHPS_ROOT/deploy/Dockerfile" --target "$1" --tag "torchps-$1" \
    "$TORCHPS_ROOT" >"$work/build.log" 2>&1 || {
    tail -n 30 "$work/build.log" >&2
    die "the image torchps-$1 could not be built; its last lines are above."
  }
}

# Starts the cluster. Sets ${container[NODE]} for server-0, server-1, worker-1, ... and report.
declare -A container
start_cluster() {
  local node number=0
  say "starting 2 servers and $TORCHPS_WORKERS workers"
  "${compose[@]}" up --detach --no-build 2>&1 | sed 's/^/  /'
  for node in server-0 server-1 report; do
    container[$node]="$("${compose[@]}" ps -aq "$node")"
  done
  for node in $("${compose[@]}" ps -aq worker); do
    number=$((number + 1))
    container[worker-$number]="$node"
  done
  [ "$number" = "$TORCHPS_WORKERS" ] || die "$number workers were started, $TORCHPS_WORKERS expected."
}

# end_job OPTION...: waits for the end of the job, checks the report with deploy/check_report.py and these options,
# and checks that the workers succeeded.
end_job() {
  local status node
  status="$(timeout "$limit_s" docker wait "${container[report]}")" || status="none after $limit_s s"
  if [ "$status" != 0 ]; then
    "${compose[@]}" logs --no-color --tail=15
    die "the report was not written (exit code $status); the containers' logs are above."
  fi
  for node in "${!container[@]}"; do
    [[ "$node" == worker-* ]] || continue
    status="$(timeout 60 docker wait "${container[$node]}")" || status="none after 60 s"
    [ "$status" = 0 ] || {
      docker logs --tail=15 "${container[$node]}"
      die "$node ended with exit code $status; its log is above."
    }
  done
  docker logs "${container[report]}"
  "$TORCHPS_ROOT/deploy/check_report.py" --servers=2 --workers="$TORCHPS_WORKERS" "$@" \
    "$TORCHPS_REPORT_DIR/report.json"
}
