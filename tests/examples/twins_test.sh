#!/bin/sh
set -eu
exec python3 "$@"
