// Fuzzes the CSV reader. The first byte selects the predicted columns and the treatment of missing
// values.

#include <string>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_file.h"
#include "torchps/data/table/csv.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  static ScratchFile* const file = new ScratchFile();
  if (size == 0) return 0;
  const std::string names[] = {"", "0", "label", "99999999999999999999", "-1"};
  CsvColumns columns;
  columns.label = names[data[0] % 5];
  if (data[0] / 5 % 3 > 0) columns.targets = {columns.label};
  if (data[0] / 5 % 3 > 1) columns.targets.push_back("1");
  columns.missing = static_cast<CsvColumns::Missing>(data[0] / 15 % 3);
  file->Put(data + 1, size - 1);
  const absl::StatusOr<RowSet> set = ReadCsv(file->path(), columns);
  if (!set.ok()) return 0;
  FUZZ_CHECK(set->rows > 0 && !set->columns.empty());
  const auto rows = static_cast<size_t>(set->rows);
  FUZZ_CHECK(set->values.size() == set->columns.size() * rows);
  FUZZ_CHECK(set->targets.size() == set->target_columns.size() * rows);
  return 0;
}
