#pragma once

#include <cstddef>

#include "common/ids.h"

namespace torchps {

// Local steps may push and pull a model's blocks in turn (LocalSpec.fragments): each server's
// blocks, in ascending order, take turns, so that every fragment has about as many of each
// server's. Averaged blocks come after the trained ones and are in all fragments.

// A fragment's number where all blocks are meant.
constexpr int kAllFragments = -1;

// In PullRequest.have_version, of a block that is not to be pulled.
constexpr Version kUnwantedBlock = -2;

// Whether a server's block number `index`, from 0 among those that it owns, is in `fragment` of
// `fragments`.
inline bool IsInFragment(size_t index, bool averaged, int fragment, int fragments) {
  return averaged || fragment == kAllFragments ||
         index % static_cast<size_t>(fragments) == static_cast<size_t>(fragment);
}

}  // namespace torchps
