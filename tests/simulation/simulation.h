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

// What one seed came to.
struct Outcome {
  std::string violation;  // empty: none
  // Equal for two runs of one seed.
  uint64_t digest = 0;
  uint64_t events = 0;
  double virtual_seconds = 0;
  // What went wrong on the way.
  int worker_deaths = 0;
  int server_deaths = 0;
  uint64_t rolled_back_blocks = 0;  // as the workers were told
  // Of blocks, in a job with whole batches.
  uint64_t batch_updates = 0;
  uint64_t early_updates = 0;
};

// One whole job, from its first process to its last, with all the trouble that the seed draws.
Outcome Run(const RunOptions& options);

}  // namespace torchps::simulation
