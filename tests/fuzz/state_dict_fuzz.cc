// Fuzzes the readers of a Python state_dict, with the input as the zip archive and as its pickle.

#include <memory>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_file.h"
#include "torchps/checkpoint/pickle/state_dict_pickle.h"
#include "torchps/checkpoint/pickle/zip_directory.h"
#include "torchps/storage/file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  static ScratchFile* const scratch = new ScratchFile();
  static FileSystem* const files = MakePosixFileSystem().release();
  scratch->Put(data, size);
  const auto file = files->OpenForReading(scratch->path());
  FUZZ_CHECK(file.ok());
  CheckNothingIsCompressed(**file).IgnoreError();

  const auto tensors = ParseStateDictPickle(
      absl::string_view(reinterpret_cast<const char*>(data), size), static_cast<int64_t>(size));
  if (!tensors.ok()) return 0;
  std::set<std::string> names;
  for (const PickledTensor& tensor : *tensors) {
    FUZZ_CHECK(names.insert(tensor.name).second);
    if (tensor.dtype == Dtype::kOther) continue;
    // The view is inside the storage. The dimensions are bounded, so the sums fit.
    FUZZ_CHECK(tensor.shape.size() == tensor.strides.size());
    __int128 last = tensor.offset;
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      FUZZ_CHECK(tensor.shape[i] >= 0 && tensor.strides[i] >= 0);
      last += static_cast<__int128>(tensor.shape[i] - 1) * tensor.strides[i];
      if (tensor.shape[i] == 0) last = -1;
      if (last < 0) break;
    }
    FUZZ_CHECK(last < tensor.storage_elements);
  }
  return 0;
}
