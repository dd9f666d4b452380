#!/usr/bin/env bash
# Builds the images, runs the cluster of docker-compose.yml until the job has ended, checks the
# report and removes the cluster.
#
#   deploy/compose_test.sh [--built] [--start-engine]
#
#   --built         use the existing images torchps-server and torchps-worker
#   --start-engine  start a Docker engine if none answers   (it keeps running)
#
# Needs root. Builds on $TORCHPS_BASE_IMAGE, or on a new Debian 12 image made with debootstrap. The
# variables of docker-compose.yml (TORCHPS_WORKERS, TORCHPS_JOB, ...) apply.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source-path=SCRIPTDIR source=compose_lib.sh
source "$TORCHPS_ROOT/deploy/compose_lib.sh"

begin_compose docker-compose.yml -- "$@"
start_cluster
end_job --accuracy=0.8
say "the cluster finished its job"
