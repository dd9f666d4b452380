#pragma once

#include <cstdint>

#include "common/data_fingerprint.h"
#include "data/dataset.h"

namespace torchps {

// Selects the numbers that a fingerprint covers. Numbers that a program computed may differ in the
// last bits between machines although the data are the same.
enum class Fingerprinted {
  kAllNumbers,
  kWholeNumbers,  // for other numbers, only the shapes
};

// Returns a non-zero number that identifies the samples: a hash (common/fnv1a.h) of the dataset
// size and of the shapes and bytes of seven evenly spaced samples. It detects another order,
// another file or another version, but usually not a change in a single sample. Returns 0 if the
// samples cannot be read; training reports the error. Use it to implement Dataset::Fingerprint().
// REQUIRES: samples do not differ between reads.
uint32_t FingerprintOfSamples(const Dataset& data, Fingerprinted numbers);

// Returns a non-zero fingerprint for a custom hash.
uint32_t FingerprintOfHash(uint64_t hash);

// Returns the fingerprints of a job's datasets, which may be null.
DataFingerprint GetFingerprint(const DataSource& source);

}  // namespace torchps
