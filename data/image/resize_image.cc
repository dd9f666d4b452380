#include "data/image/resize_image.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace torchps {
namespace {

// The source pixels that contribute to a result pixel along one axis.
struct Window {
  int64_t end() const { return first + static_cast<int64_t>(weights.size()); }

  int64_t first = 0;
  std::vector<float> weights;  // for first, first + 1, ...; the sum is 1
};

std::vector<Window> Windows(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(scale, 1.0);
  std::vector<Window> windows(to);
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, std::llround(centre - reach));
    const auto end = std::min<int64_t>(from, std::llround(centre + reach));
    Window& window = windows[i];
    window.first = std::min(first, from - 1);
    double sum = 0;
    for (int64_t x = window.first; x < std::max(end, window.first + 1); ++x) {
      const double distance = std::abs(static_cast<double>(x) + 0.5 - centre) / reach;
      window.weights.push_back(static_cast<float>(std::max(0.0, 1.0 - distance)));
      sum += window.weights.back();
    }
    for (float& weight : window.weights) weight = static_cast<float>(weight / sum);
  }
  return windows;
}

}  // namespace

void ResizeToPlanes(const DecodedImage& image, int64_t height, int64_t width, uint8_t* planes) {
  const int64_t channels = image.channels;
  const std::vector<Window> across = Windows(image.width, width);
  const std::vector<Window> down = Windows(image.height, height);
  // Resize one image row at a time horizontally, and add it to the sums of all result rows that it
  // contributes to. An image may be a million times taller than wide, and all resized rows together
  // would not fit in memory.
  std::vector<float> row(width * channels);
  std::vector<float> sums(height * width * channels);
  int64_t begin = 0;  // the first unfinished result row
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* const source = image.pixels.data() + y * image.width * channels;
    float* value = row.data();
    for (const Window& window : across) {
      for (int64_t c = 0; c < channels; ++c) {
        const uint8_t* pixel = source + window.first * channels + c;
        float sum = 0;
        for (float weight : window.weights) {
          sum += weight * *pixel;
          pixel += channels;
        }
        *value++ = sum;
      }
    }
    while (begin < height && down[begin].end() <= y) ++begin;
    for (int64_t to = begin; to < height && down[to].first <= y; ++to) {
      const float weight = down[to].weights[y - down[to].first];
      float* const sum = sums.data() + to * width * channels;
      for (int64_t i = 0; i < width * channels; ++i) sum[i] += weight * row[i];
    }
  }
  const float* sum = sums.data();
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < channels; ++c) {
        planes[(c * height + y) * width + x] =
            static_cast<uint8_t>(std::clamp(std::lround(*sum++), 0L, 255L));
      }
    }
  }
}

}  // namespace torchps
