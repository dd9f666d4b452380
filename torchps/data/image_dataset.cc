#include "torchps/data/image_dataset.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "torchps/common/check.h"
#include "torchps/common/hash.h"
#include "torchps/data/dataset.h"

namespace torchps {

Normalization MeasureNormalization(const ImageSet& images) {
  Normalization result;
  const int64_t plane = images.height * images.width;
  for (int64_t c = 0; c < images.channels; ++c) {
    std::array<uint64_t, 256> count{};
    for (int64_t i = 0; i < images.size(); ++i) {
      const uint8_t* pixel = images.pixels.data() + i * images.image_bytes() + c * plane;
      for (int64_t p = 0; p < plane; ++p) ++count[pixel[p]];
    }
    uint64_t sum = 0;
    uint64_t square_sum = 0;
    for (uint64_t value = 0; value < count.size(); ++value) {
      sum += count[value] * value;
      square_sum += count[value] * value * value;
    }
    const double pixels = static_cast<double>(images.size() * plane);
    const double mean = sum / pixels;
    const double variance = square_sum / pixels - mean * mean;
    result.mean.push_back(static_cast<float>(mean / 255));
    result.deviation.push_back(variance > 1e-6 ? static_cast<float>(std::sqrt(variance) / 255)
                                               : 1.0f);
  }
  return result;
}

NormalizedValues GetValues(const Normalization& normalization) {
  NormalizedValues values(normalization.mean.size());
  for (size_t c = 0; c < values.size(); ++c) {
    for (int byte = 0; byte < 256; ++byte) {
      values[c][byte] = (byte / 255.0f - normalization.mean[c]) / normalization.deviation[c];
    }
  }
  return values;
}

ImageDataset::ImageDataset(ImageSet images, const Normalization& normalization, int64_t classes)
    : images_(std::move(images)), classes_(classes), value_of_(GetValues(normalization)) {
  TPS_CHECK(static_cast<int64_t>(normalization.mean.size()) == images_.channels &&
                normalization.deviation.size() == normalization.mean.size(),
            "a normalization has every channel");
}

DataShape ImageDataset::shape() const {
  DataShape shape;
  shape.channels = images_.channels;
  shape.height = images_.height;
  shape.width = images_.width;
  shape.features = images_.image_bytes();
  shape.classes = classes_;
  return shape;
}

absl::StatusOr<Batch> ImageDataset::Get(absl::Span<const int64_t> indices) const {
  const int64_t rows = indices.size();
  const int64_t plane = images_.height * images_.width;
  Batch batch;
  batch.input =
      torch::empty({rows, images_.channels, images_.height, images_.width}, torch::kFloat32);
  if (images_.has_answers) batch.target = torch::empty({rows}, torch::kInt64);
  float* value = batch.input.data_ptr<float>();
  int64_t* label = images_.has_answers ? batch.target.data_ptr<int64_t>() : nullptr;
  for (int64_t index : indices) {
    TPS_DCHECK(index >= 0 && index < size(), "a sample's index is inside the dataset");
    const uint8_t* pixel = images_.pixels.data() + index * images_.image_bytes();
    for (const std::array<float, 256>& value_of : value_of_) {
      for (int64_t p = 0; p < plane; ++p) *value++ = value_of[*pixel++];
    }
    if (label != nullptr) *label++ = images_.labels[index];
  }
  return batch;
}

uint32_t ImageDataset::Fingerprint() const {
  return FingerprintOfSamples(*this, Fingerprinted::kAllNumbers);
}

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
