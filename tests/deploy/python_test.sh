#!/usr/bin/env bash
# python_test.sh TEST: runs a test that needs nothing but Python.
PYTHONDONTWRITEBYTECODE=1 exec python3 "$1"
