#pragma once

#include <cstdint>

#include "data/image/image_set.h"

namespace torchps {

// Which of two disjoint streams of digits: they differ in every random draw.
enum class DigitsPart : uint64_t { kTrain = 1, kTest = 2 };

// `samples` handwriting-like grey digits, 28 x 28 with ink bright on dark as in MNIST, drawn by the
// program itself: a stroke font of several styles a digit, bent, slanted, scaled, shifted, of
// varying pen, over noise. Image i shows digit i mod 10, so every class has its share, and depends
// on (seed, part, i) alone. Whole-number arithmetic throughout: the same bytes on every machine.
//
// About 20 us an image.
ImageSet GenerateDigits(int64_t samples, uint64_t seed, DigitsPart part);

}  // namespace torchps
