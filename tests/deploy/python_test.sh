#!/usr/bin/env bash
# python_test.sh TEST: runs a test that requires only Python.
PYTHONDONTWRITEBYTECODE=1 exec python3 "$1"
