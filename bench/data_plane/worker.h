#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/data_plane/operation.h"

namespace torchps {

// What the driver asks of a worker process, and what comes back: one line each way.

// Repeat the case from `start_ns` on for `duration_ns`, and `least` times at least. Times are
// CLOCK_MONOTONIC, which all processes share.
struct Order {
  std::string case_name;
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int64_t least = 1;
};
std::string ToLine(const Order& order);

// Every operation that was begun within the time is finished; those that ended within it, and
// `least` in any case, are counted, so that while what is counted runs all workers run.
struct Account {
  int64_t begun = 0;
  int64_t counted_ns = 0;             // from the start to the end of the last one that counts
  std::vector<int64_t> latencies_ns;  // of each one that counts
};
absl::StatusOr<Account> ParseAccount(absl::string_view line);

int64_t NowNs();

// A worker process: says "ready", carries out orders from standard input, one after the other,
// until it ends. The error of an order goes to standard error and ends it too.
absl::Status ObeyOrders(Stage& stage);

}  // namespace torchps
