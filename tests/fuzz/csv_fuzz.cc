// CSV files. The first byte chooses the column of the labels.

#include <string>

#include "data/table/csv.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  static ScratchFile* const file = new ScratchFile();
  if (size == 0) return 0;
  const std::string columns[] = {"", "0", "label", "99999999999999999999", "-1"};
  file->Put(data + 1, size - 1);
  const absl::StatusOr<RowSet> set = ReadCsv(file->path(), columns[data[0] % 5]);
  if (!set.ok()) return 0;
  FUZZ_CHECK(set->size() > 0 && !set->columns.empty());
  FUZZ_CHECK(set->values.size() == set->columns.size() * static_cast<size_t>(set->size()));
  return 0;
}
