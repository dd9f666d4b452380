#pragma once

#include <cstdint>

#include "torchps/data/image/image_folder.h"

namespace torchps {

// Selects one of two disjoint streams of digits, which differ in all random draws.
enum class DigitsPart : uint64_t { kTrain = 1, kTest = 2 };

// Generates `samples` gray digits that resemble handwriting, 28 x 28 pixels with bright ink on dark
// as in MNIST. Uses a stroke font with several styles per digit, and varies bend, slant, scale,
// position, pen and noise. Image i shows digit i mod 10, so the classes are balanced, and depends
// only on (seed, part, i). Uses only integer arithmetic, so the bytes are the same on every
// machine.
//
// Needs about 20 us per image.
ImageSet GenerateDigits(int64_t samples, uint64_t seed, DigitsPart part);

}  // namespace torchps
