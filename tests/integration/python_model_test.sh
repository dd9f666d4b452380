#!/bin/sh
set -eu
# Debian's Python, because another Python earlier in the PATH lacks torch.
export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 "$@"
