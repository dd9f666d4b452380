#!/usr/bin/env bash
# Runs convergence_test.py by the Python that Debian's python3-torch belongs to.
PYTHONDONTWRITEBYTECODE=1 exec /usr/bin/python3 tests/bench/convergence_test.py
