#!/bin/sh
set -eu
# Debian's Python: another one that is first in the PATH has no torch.
export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 "$@"
