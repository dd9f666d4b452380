#pragma once

#include <cstdint>

namespace torchps {

// Distinguishes data sets of the same size: a hash of a few training samples and a hash of a few
// test samples (computed in data/fingerprint.h). Unknown values are 0. Plain value type.
struct DataFingerprint {
  uint32_t train = 0;
  uint32_t test = 0;

  // Returns the encoded form used in JoinRequest and CoordinatorState.
  uint64_t number() const { return uint64_t{train} << 32 | test; }
  static DataFingerprint Of(uint64_t number) {
    return {static_cast<uint32_t>(number >> 32), static_cast<uint32_t>(number)};
  }

  // Returns this fingerprint with unknown values replaced from `other`.
  DataFingerprint CompletedBy(const DataFingerprint& other) const {
    return {train == 0 ? other.train : train, test == 0 ? other.test : test};
  }
};

}  // namespace torchps
