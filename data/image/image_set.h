#pragma once

#include <cstdint>
#include <vector>

namespace torchps {

// Images of one size with a class each, as bytes. The image readers return this type; it does not
// depend on torch.
struct ImageSet {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  // Image by image, then channel by channel, then row by row.
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  bool has_answers = true;  // if false, all labels are 0

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  int64_t image_bytes() const { return channels * height * width; }

  // Keeps the first `samples` images; 0 keeps all.
  void Limit(int64_t samples) {
    if (samples <= 0 || samples >= size()) return;
    labels.resize(samples);
    pixels.resize(samples * image_bytes());
  }
};

}  // namespace torchps
