#pragma once

#include "tests/testing/job_harness.h"

namespace torchps {

// What every worker of the shared-memory tests says first: blocks that take a server a while, and
// a lease that outlasts a busy machine, after which a dead slot is forgotten within a test.
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
