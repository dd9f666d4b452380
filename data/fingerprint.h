#pragma once

#include <cstdint>

#include "common/data_fingerprint.h"
#include "data/dataset.h"

namespace torchps {

// Which numbers of its samples make a data set's fingerprint. What a program has computed may
// differ in its last bits from machine to machine, and is the same data all the same.
enum class Fingerprinted {
  kAllNumbers,
  kWholeNumbers,  // of others their shapes
};

// A number other than 0 that says which samples these are: a hash (common/fnv1a.h) of how many
// there are, and of shapes and bytes of seven, evenly spread. So another order, another file or an
// older version are noticed, and one sample that was mended hardly. 0: they cannot be read; who
// trains on them will hear why. For what Dataset::Fingerprint() returns. REQUIRES: samples do not
// differ from read to read.
uint32_t FingerprintOfSamples(const Dataset& data, Fingerprinted numbers);

// One that is made of a hash of one's own; never 0.
uint32_t FingerprintOfHash(uint64_t hash);

// Of the data of a job, whose sets may be null.
DataFingerprint GetFingerprint(const DataSource& source);

}  // namespace torchps
