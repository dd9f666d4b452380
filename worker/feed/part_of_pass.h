#pragma once

#include <cstddef>

// Splits the samples of a pass among the replicas of a worker with several devices. Stateless.

namespace torchps {

// The range of samples, counted from the first sample of the pass.
struct PartOfPass {
  size_t begin = 0;
  size_t size = 0;
};

// Returns the number of replicas that compute a part of a pass; these are the replicas with the
// lowest numbers. Each part contains at least two samples if the pass does, because batch norm
// cannot train on one.
size_t PartsOfPass(size_t samples, size_t replicas);

// Returns the part of replica `replica`, counted from 0. Parts are equal; the first parts get one
// more sample each if a remainder is left.
PartOfPass GetPart(size_t samples, size_t replica, size_t replicas);

}  // namespace torchps
