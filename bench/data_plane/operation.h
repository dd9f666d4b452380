#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/data_plane/scenario.h"

namespace torchps {

// The operation that a worker process repeats for a measurement. Thread-compatible.
class Operation {
 public:
  virtual ~Operation() = default;

  // Performs the operation once. Blocks until done.
  virtual absl::Status Run() = 0;
};

// Makes the operations of one worker process. Owns shared state (connections, buffers) and outlives
// the operations. Thread-compatible.
class Stage {
 public:
  virtual ~Stage() = default;

  // Prepares the operation for a case that this stage supports. Performs any slow initialization
  // here (connections, page faults).
  virtual absl::StatusOr<std::unique_ptr<Operation>> Prepare(absl::string_view name) = 0;
};

// The worker's slot, and the addresses of the other processes.
struct Peers {
  int slot = 0;                        // from 0
  std::vector<std::string> addresses;  // of servers or peers, as they printed them
};

// Returns the stage for the cases memcpy and in_process_apply.
absl::StatusOr<std::unique_ptr<Stage>> MakeMemoryStage(const Scenario& scenario);
// Returns the stage for the case raw_tcp.
absl::StatusOr<std::unique_ptr<Stage>> MakeTcpStage(const Scenario& scenario, const Peers& peers);
// Returns the stage for the cases push_apply, pull and push_pull.
absl::StatusOr<std::unique_ptr<Stage>> MakeTorchpsStage(const Scenario& scenario,
                                                        const Peers& peers);

}  // namespace torchps
