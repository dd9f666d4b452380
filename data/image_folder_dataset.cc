#include "data/image_folder_dataset.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/fnv1a.h"
#include "data/fingerprint.h"

namespace torchps {
namespace {

constexpr int64_t kMeasuredImages = 256;

}  // namespace

absl::StatusOr<Normalization> MeasureNormalization(const ImageFolder& folder,
                                                   const ImageSize& size) {
  ImageFolder some = folder;
  some.Limit(kMeasuredImages);
  ImageSet images;
  images.channels = size.channels;
  images.height = size.height;
  images.width = size.width;
  images.labels.resize(some.size());
  images.pixels.resize(some.size() * images.image_bytes());
  for (int64_t i = 0; i < some.size(); ++i) {
    absl::Status loaded = LoadImage(some, i, size, images.pixels.data() + i * images.image_bytes());
    if (!loaded.ok()) return loaded;
  }
  return MeasureNormalization(images);
}

ImageFolderDataset::ImageFolderDataset(ImageFolder folder, const ImageSize& size,
                                       const Normalization& normalization, int64_t classes)
    : folder_(std::move(folder)),
      size_(size),
      classes_(classes),
      has_answers_(!folder_.files.empty() && folder_.files.front().label >= 0),
      value_of_(GetValues(normalization)) {
  TPS_CHECK(static_cast<int64_t>(value_of_.size()) == size.channels,
            "a normalization has every channel");
}

DataShape ImageFolderDataset::shape() const {
  DataShape shape;
  shape.channels = size_.channels;
  shape.height = size_.height;
  shape.width = size_.width;
  shape.features = size_.channels * size_.height * size_.width;
  shape.classes = classes_;
  return shape;
}

absl::StatusOr<Batch> ImageFolderDataset::Get(absl::Span<const int64_t> indices) const {
  const int64_t rows = indices.size();
  const int64_t plane = size_.height * size_.width;
  Batch batch;
  batch.input = torch::empty({rows, size_.channels, size_.height, size_.width}, torch::kFloat32);
  if (has_answers_) batch.target = torch::empty({rows}, torch::kInt64);
  float* value = batch.input.data_ptr<float>();
  int64_t* label = has_answers_ ? batch.target.data_ptr<int64_t>() : nullptr;
  std::vector<uint8_t> pixels(size_.channels * plane);
  for (int64_t index : indices) {
    TPS_DCHECK(index >= 0 && index < size(), "a sample's index is inside the dataset");
    absl::Status loaded = LoadImage(folder_, index, size_, pixels.data());
    if (!loaded.ok()) return loaded;
    const uint8_t* pixel = pixels.data();
    for (const std::array<float, 256>& value_of : value_of_) {
      for (int64_t p = 0; p < plane; ++p) *value++ = value_of[*pixel++];
    }
    if (label != nullptr) *label++ = folder_.files[index].label;
  }
  return batch;
}

uint32_t ImageFolderDataset::Fingerprint() const {
  // Hash the names, because decoder releases differ in the pixels of a JPEG.
  Fnv1a hash;
  for (const ImageFolder::File& file : folder_.files) {
    hash.AddInteger(static_cast<uint64_t>(file.label));
    hash.AddString(file.name);
  }
  return FingerprintOfHash(hash.value());
}

}  // namespace torchps
