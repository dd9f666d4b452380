// Writes the test set of a job with data.source "digits", seed 1 and 1,000 test samples as IDX
// files, for checks of a model with other programs.
//
//   write_digits FOLDER

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "torchps/data/image/digits.h"

namespace torchps {
namespace {

bool Write(const std::string& path, const std::vector<uint32_t>& head,
           const std::vector<uint8_t>& body) {
  std::ofstream file(path, std::ios::binary);
  for (const uint32_t number : head) {
    for (int shift = 24; shift >= 0; shift -= 8) file.put(static_cast<char>(number >> shift));
  }
  file.write(reinterpret_cast<const char*>(body.data()), static_cast<int64_t>(body.size()));
  return static_cast<bool>(file.flush());
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  const torchps::ImageSet digits =
      torchps::GenerateDigits(1000, /*seed=*/1, torchps::DigitsPart::kTest);
  const auto count = static_cast<uint32_t>(digits.size());
  if (torchps::Write(folder + "/t10k-images-idx3-ubyte", {0x803, count, 28, 28}, digits.pixels) &&
      torchps::Write(folder + "/t10k-labels-idx1-ubyte", {0x801, count}, digits.labels)) {
    return 0;
  }
  std::fprintf(stderr, "write_digits: cannot write into %s\n", folder.c_str());
  return 1;
}
