#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/data_plane/operation.h"

namespace torchps {

// Orders from the driver to a worker process, and the answers: one line each.

// An order to repeat the case from `start_ns` for `duration_ns`, and at least `least` times. Times
// are CLOCK_MONOTONIC, which is common to the processes.
struct Order {
  std::string case_name;
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int64_t least = 1;
};
std::string ToLine(const Order& order);

// Result of an order. The worker finishes each operation that it begins within the duration, so
// that it is still busy while other workers' counted operations run. It counts only operations that
// end within the duration, but always the first `least`.
struct Account {
  int64_t begun = 0;
  int64_t counted_ns = 0;             // from the start to the end of the last counted operation
  std::vector<int64_t> latencies_ns;  // of the counted operations
};
absl::StatusOr<Account> ParseAccount(absl::string_view line);

int64_t NowNs();

// Runs a worker process: prints "ready" and carries out orders until standard input ends or an
// order fails. Prints the error to standard error.
absl::Status ObeyOrders(Stage& stage);

}  // namespace torchps
