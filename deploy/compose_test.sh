#!/usr/bin/env bash
# Builds the images, runs the cluster of docker-compose.yml until its job is done, checks the report
# and takes everything down again.
#
#   deploy/compose_test.sh [--built] [--start-engine]
#
#   --built         take the images torchps-server and torchps-worker that are there
#   --start-engine  start a Docker engine if none answers   (it goes on running)
#
# Needs root. It builds on $TORCHPS_BASE_IMAGE, or on a Debian 12 made here by debootstrap. The
# variables of docker-compose.yml (TORCHPS_WORKERS, TORCHPS_JOB, ...) apply.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source-path=SCRIPTDIR source=compose_lib.sh
source "$TORCHPS_ROOT/deploy/compose_lib.sh"

begin_compose docker-compose.yml -- "$@"
start_cluster
end_job --accuracy=0.8
say "the cluster finished its job"
