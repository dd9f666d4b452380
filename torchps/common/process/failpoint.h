#pragma once

namespace torchps {

// Points between two actions of the program at which injected file or network faults cannot stop
// it. Tests can kill the process at a failpoint:
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

// Lists all failpoints; tests/fault/failpoint_test.cc checks that each kills its process.
inline constexpr FailpointRow kFailpoints[] = {
    {Failpoint::kPushApplied, "push.applied",
     "a frame has changed its block; nothing else records it"},
    {Failpoint::kPushAnswered, "push.answered", "a push is durable, but its reply is not sent"},
    {Failpoint::kLogWritten, "log.written", "a group of the push log is written, but not synced"},
    {Failpoint::kLogSynced, "log.synced", "a group is synced, but its pushes are not answered"},
    {Failpoint::kShardWritten, "shard.written", "a shard is written, but not renamed"},
    {Failpoint::kStateKept, "state.kept",
     "the coordinator's state is stored, but no reply is sent"},
};

void ReachFailpoint(Failpoint point);

}  // namespace torchps
