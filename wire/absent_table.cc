#include "wire/absent_table.h"

#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace torchps {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are sent as they lie in memory");

}  // namespace

void WriteAbsentTable(absl::Span<const ElementRun> runs, uint8_t* destination) {
  for (const ElementRun& run : runs) {
    const uint32_t numbers[] = {static_cast<uint32_t>(run.begin),
                                static_cast<uint32_t>(run.end - run.begin)};
    static_assert(sizeof(numbers) == kAbsentRunBytes);
    std::memcpy(destination, numbers, sizeof(numbers));
    destination += sizeof(numbers);
  }
}

absl::StatusOr<ElementRuns> ReadAbsentTable(absl::Span<const uint8_t> bytes, size_t max_runs) {
  if (bytes.size() % kAbsentRunBytes != 0 || bytes.size() > AbsentTableBytes(max_runs)) {
    return absl::InvalidArgumentError(absl::StrCat("a table of absent elements has ", bytes.size(),
                                                   " bytes; expected ", kAbsentRunBytes,
                                                   " for each of at most ", max_runs, " runs"));
  }
  ElementRuns runs;
  runs.reserve(bytes.size() / kAbsentRunBytes);
  for (size_t at = 0; at < bytes.size(); at += kAbsentRunBytes) {
    uint32_t numbers[2];
    std::memcpy(numbers, bytes.data() + at, sizeof(numbers));
    runs.push_back({numbers[0], int64_t{numbers[0]} + numbers[1]});
  }
  if (absl::Status checked = CheckRuns(runs, std::numeric_limits<int64_t>::max()); !checked.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a table of absent elements: ", checked.message()));
  }
  return runs;
}

}  // namespace torchps
