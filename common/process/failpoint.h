#pragma once

namespace torchps {

// Points at which a crash separates two actions and which file or network faults cannot reach.
// Tests can kill the process at a failpoint:
//
//   TORCHPS_FAILPOINT=NAME:kill:N    sends SIGKILL when the point is reached for the N-th time
//
// Active only in builds with `--define=failpoints=1`, which .bazelrc sets for `bazel test`. In
// other builds ReachFailpoint() is an empty function. Thread-safe.
enum class Failpoint {
  kPushApplied,
  kPushAnswered,
  kLogWritten,
  kLogSynced,
  kShardWritten,
  kStateKept,
};

struct FailpointRow {
  Failpoint point;
  const char* name;
  const char* moment;
};

// Lists all failpoints; tests/fault/failpoint_test.cc checks that each of them fires.
inline constexpr FailpointRow kFailpoints[] = {
    {Failpoint::kPushApplied, "push.applied", "a frame has changed its block, nothing else knows"},
    {Failpoint::kPushAnswered, "push.answered", "a push is durable, its answer not yet on its way"},
    {Failpoint::kLogWritten, "log.written", "a group of the push log is written, not synced"},
    {Failpoint::kLogSynced, "log.synced",
     "a group is synced, and no push that waits for it is answered"},
    {Failpoint::kShardWritten, "shard.written", "a shard has all its blocks and no name"},
    {Failpoint::kStateKept, "state.kept", "the coordinator's state is kept, its answers not given"},
};

void ReachFailpoint(Failpoint point);

}  // namespace torchps
