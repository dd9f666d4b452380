#pragma once

#include <cstdint>

namespace torchps {

// What tells data sets of one size apart: a number of a few training samples, and one of a few test
// samples (data/fingerprint.h makes them). Each is 0 where it is not known. A plain value.
struct DataFingerprint {
  uint32_t train = 0;
  uint32_t test = 0;

  // As it travels and is kept, in JoinRequest and CoordinatorState.
  uint64_t number() const { return uint64_t{train} << 32 | test; }
  static DataFingerprint Of(uint64_t number) {
    return {static_cast<uint32_t>(number >> 32), static_cast<uint32_t>(number)};
  }

  // This one, and the other where this one does not know.
  DataFingerprint CompletedBy(const DataFingerprint& other) const {
    return {train == 0 ? other.train : train, test == 0 ? other.test : test};
  }
};

}  // namespace torchps
