#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"
#include "data/image/image_set.h"

namespace torchps {

// Per channel, what is taken off a pixel (0 to 1) and what the rest is divided by.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> deviation;
};

// Mean and standard deviation of `images`' channels; a constant channel gets deviation 1. Summed up
// in whole numbers, so nothing is lost however many there are.
Normalization MeasureNormalization(const ImageSet& images);

// Per channel: byte -> normalised value.
using NormalizedValues = std::vector<std::array<float, 256>>;
NormalizedValues GetValues(const Normalization& normalization);

// Images held as bytes. A batch is float32 [B, C, H, W], normalised when it is made, and int64 [B]
// classes, or no target for images without answers. Immutable.
class ImageDataset : public Dataset {
 public:
  // REQUIRES: as many means and deviations as channels; every label below `classes`.
  ImageDataset(ImageSet images, const Normalization& normalization, int64_t classes);

  int64_t size() const override { return images_.size(); }
  DataShape shape() const override;
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;
  uint32_t Fingerprint() const override;

 private:
  const ImageSet images_;
  const int64_t classes_;
  const NormalizedValues value_of_;
};

}  // namespace torchps
