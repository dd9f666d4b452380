#pragma once

#include <cstddef>

// How a pass's samples are shared out among the replicas of a worker with several devices. Free
// functions without state.

namespace torchps {

// Which samples of a pass, counted from its first.
struct PartOfPass {
  size_t begin = 0;
  size_t size = 0;
};

// How many of the replicas compute something of a pass of `samples`: the first ones. Each has at
// least two samples, since batch norm cannot train on a single one, unless there is only one.
size_t PartsOfPass(size_t samples, size_t replicas);

// The part of replica `replica`, from 0: equal ones, of which the first have the remainder.
PartOfPass GetPart(size_t samples, size_t replica, size_t replicas);

}  // namespace torchps
