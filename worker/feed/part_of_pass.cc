#include "worker/feed/part_of_pass.h"

#include <algorithm>

namespace torchps {

size_t PartsOfPass(size_t samples, size_t replicas) {
  return std::min(std::max<size_t>(samples / 2, 1), replicas);
}

PartOfPass GetPart(size_t samples, size_t replica, size_t replicas) {
  const size_t parts = PartsOfPass(samples, replicas);
  if (replica >= parts) return {samples, 0};
  const size_t equal = samples / parts;
  const size_t rest = samples % parts;
  return {replica * equal + std::min(replica, rest), equal + (replica < rest ? 1 : 0)};
}

}  // namespace torchps
