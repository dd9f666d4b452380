#pragma once

#include <cstdint>
#include <vector>

namespace torchps {

// Images of one size with a class each, as bytes: what the image readers return, free of torch.
struct ImageSet {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  // Image after image, within an image channel after channel, row after row.
  std::vector<uint8_t> pixels;
  std::vector<uint8_t> labels;
  bool has_answers = true;  // else all labels are 0

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
