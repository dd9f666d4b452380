#pragma once

#include <cstdint>
#include <string>

#include "tests/simulation/scenario.h"

namespace torchps::simulation {

struct RunOptions {
  uint64_t seed = 0;
  bool is_traced = false;
  Fault fault = Fault::kNone;
};

// Result of one seed.
struct Outcome {
  std::string violation;  // empty if there was none
  // Equal for two runs of a seed.
  uint64_t digest = 0;
  uint64_t events = 0;
  double virtual_seconds = 0;
  // Counts of faults.
  int worker_deaths = 0;
  int server_deaths = 0;
  int lost_disks = 0;
  uint64_t rolled_back_blocks = 0;  // as reported to the workers
  // Updates of blocks in a job with whole batches.
  uint64_t batch_updates = 0;
  uint64_t early_updates = 0;
};

// Runs one whole job with all faults that the seed draws.
Outcome Run(const RunOptions& options);

}  // namespace torchps::simulation
