#!/usr/bin/env bash
# Runs gpu_scripts_test.py, which needs nothing but Python.
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/deploy/gpu_scripts_test.py
