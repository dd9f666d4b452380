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

// Mean and deviation of each channel over at most 256 images of `folder`, evenly spread: decoding
// all of them would take as long as an epoch. Errors: those of LoadImage.
absl::StatusOr<Normalization> MeasureNormalization(const ImageFolder& folder,
                                                   const ImageSize& size);

// Image files, each read, decoded and stretched when its batch is asked for. A batch is that of
// ImageDataset. Immutable. Get() returns the errors of LoadImage.
class ImageFolderDataset : public Dataset {
 public:
  // REQUIRES: as many means and deviations as channels.
  ImageFolderDataset(ImageFolder folder, const ImageSize& size, const Normalization& normalization,
                     int64_t classes);

  int64_t size() const override { return folder_.size(); }
  DataShape shape() const override;
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices) const override;
  // Of the files' names and classes.
  uint32_t Fingerprint() const override;

 private:
  const ImageFolder folder_;
  const ImageSize size_;
  const int64_t classes_;
  const bool has_answers_;
  const NormalizedValues value_of_;
};

}  // namespace torchps
