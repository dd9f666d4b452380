// Fuzzes the CIFAR-10 reader.

#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_file.h"
#include "torchps/data/image/image_sets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  static ScratchFile* const file = new ScratchFile();
  file->Put(data, size);
  const size_t slash = file->path().rfind('/');
  const absl::StatusOr<ImageSet> set =
      ReadCifar10(file->path().substr(0, slash), {file->path().substr(slash + 1)});
  if (!set.ok()) return 0;
  FUZZ_CHECK(set->size() > 0);
  FUZZ_CHECK(static_cast<int64_t>(set->pixels.size()) == set->size() * set->image_bytes());
  FUZZ_CHECK(*std::max_element(set->labels.begin(), set->labels.end()) <= 9);
  return 0;
}
