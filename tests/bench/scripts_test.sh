#!/usr/bin/env bash
# Runs scripts_test.py, which requires only Python.
PYTHONDONTWRITEBYTECODE=1 exec python3 tests/bench/scripts_test.py
