#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/data_plane/scenario.h"

namespace torchps {

// What a worker process repeats while it is measured. Thread-compatible.
class Operation {
 public:
  virtual ~Operation() = default;

  // Does it once, from beginning to end, blocking.
  virtual absl::Status Run() = 0;
};

// Makes the operations of one worker process. Owns what they share (connections, buffers) and
// outlives them. Thread-compatible.
class Stage {
 public:
  virtual ~Stage() = default;

  // `name` is one of the cases that this stage was made for. Whatever makes the first time slow
  // (connections, page faults) is done here.
  virtual absl::StatusOr<std::unique_ptr<Operation>> Prepare(absl::string_view name) = 0;
};

// Where a worker process finds the others.
struct Peers {
  int slot = 0;                        // from 0
  std::vector<std::string> addresses;  // of servers or peers, as they told them
};

// memcpy, in_process_apply.
absl::StatusOr<std::unique_ptr<Stage>> MakeMemoryStage(const Scenario& scenario);
// raw_tcp.
absl::StatusOr<std::unique_ptr<Stage>> MakeTcpStage(const Scenario& scenario, const Peers& peers);
// push_apply, pull, push_pull.
absl::StatusOr<std::unique_ptr<Stage>> MakeTorchpsStage(const Scenario& scenario,
                                                        const Peers& peers);

}  // namespace torchps
