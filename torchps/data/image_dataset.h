#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "torchps/data/dataset.h"
#include "torchps/data/image/image_folder.h"

namespace torchps {

// Normalizes a pixel (0 to 1) per channel: (pixel - mean) / deviation.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> deviation;
};

// Returns the mean and the standard deviation of each channel of `images`. Returns deviation 1 for
// a constant channel. Uses integer sums, so the result is exact for any number of images.
Normalization MeasureNormalization(const ImageSet& images);

// [c][b] is the normalized value of byte `b` in channel `c`.
using NormalizedValues = std::vector<std::array<float, 256>>;
NormalizedValues GetValues(const Normalization& normalization);

// Holds images as bytes. Batches are float32 [B, C, H, W], normalized in Get(), with int64 [B]
// classes, or without a target if the images lack answers. Immutable.
class ImageDataset : public Dataset {
 public:
  // REQUIRES: there is one mean and one deviation per channel, and labels are below `classes`.
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

// Returns the mean and the deviation of each channel over at most 256 evenly spaced images of
// `folder`. Decoding all images would need as long as an epoch. Returns LoadImage's errors.
absl::StatusOr<Normalization> MeasureNormalization(const ImageFolder& folder,
                                                   const ImageSize& size);

// Provides samples from image files. Get() reads, decodes and stretches the images, and returns a
// batch like ImageDataset's, or LoadImage's errors. Immutable.
class ImageFolderDataset : public Dataset {
 public:
  // REQUIRES: there is one mean and one deviation per channel.
  ImageFolderDataset(ImageFolder folder, const ImageSize& size, const Normalization& normalization,
                     int64_t classes);

  int64_t size() const override { return folder_.size(); }
  DataShape shape() const override;
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;
  // Covers the files' names and classes.
  uint32_t Fingerprint() const override;

 private:
  const ImageFolder folder_;
  const ImageSize size_;
  const int64_t classes_;
  const bool has_answers_;
  const NormalizedValues value_of_;
};

}  // namespace torchps
