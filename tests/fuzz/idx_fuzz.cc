// Fuzzes the IDX reader. The first byte sets the length of the labels at the end of the input. The
// rest is the images.

#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_file.h"
#include "torchps/data/image/image_sets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  static ScratchFile* const images = new ScratchFile();
  static ScratchFile* const labels = new ScratchFile();
  if (size == 0) return 0;
  const size_t label_bytes = std::min<size_t>(data[0], size - 1);
  images->Put(data + 1, size - 1 - label_bytes);
  labels->Put(data + size - label_bytes, label_bytes);
  const absl::StatusOr<ImageSet> set = ReadIdxImages(images->path(), labels->path());
  if (!set.ok()) return 0;
  FUZZ_CHECK(set->size() > 0);
  FUZZ_CHECK(static_cast<int64_t>(set->pixels.size()) == set->size() * set->image_bytes());
  return 0;
}
