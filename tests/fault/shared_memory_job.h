#pragma once

#include "tests/testing/job_harness.h"

namespace torchps {

// Returns a worker's Hello for the shared-memory tests. The blocks are large enough to keep a
// server busy. The lease outlasts delays on a busy machine but expires within a test.
inline HelloRequest SharedMemoryJobHello(SlotId slot) {
  JobHarness::Options options;
  options.trained = 8 << 20;
  options.block_elements = 256 << 10;
  options.job = "consistency { staleness_bound: -1 } membership { lease_seconds: 4 }";
  HelloRequest hello = JobHarness::Hello(options);
  hello.set_slot(slot);
  return hello;
}

}  // namespace torchps
