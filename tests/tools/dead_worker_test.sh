#!/bin/sh
# If psctl sees a worker die, its slot is reassigned at once. Otherwise the lease of an hour would
# outlast the test's timeout.
set -eu
torchps/psctl drill --job=deploy/jobs/linear_digits.textproto --servers=1 --workers=2 \
  --set=training.epochs=20 --set=membership.lease_seconds=3600 --patience=30s \
  --kill=worker.1:at=0.1s --seconds=1 --dir="$TEST_TMPDIR/run" >"$TEST_TMPDIR/said" || {
  cat "$TEST_TMPDIR/said"
  exit 1
}
grep -q 'killed: 0 servers, 1 worker;' "$TEST_TMPDIR/said"
! grep -q 'waiting for a slot' "$TEST_TMPDIR/said"
