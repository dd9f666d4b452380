#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/dataset.h"
#include "data/image/image_folder.h"
#include "data/image_dataset.h"

namespace torchps {

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
