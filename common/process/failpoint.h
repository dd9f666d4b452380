#pragma once

namespace torchps {

// Moments between two things that a crash may separate, where faults of files and networks cannot
// reach. A test ends the process at one of them:
//
//   TORCHPS_FAILPOINT=NAME:kill:N    SIGKILL when the point is reached for the N-th time
//
// Only `--define=failpoints=1` (which .bazelrc gives to `bazel test`) makes them do anything; in
// all other builds they are calls of an empty function. Thread-safe.
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

// All there are; tests/fault/failpoint_test.cc shows each of them to have fired.
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
