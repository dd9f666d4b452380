// Fuzzes the shard reader. The checksum is always valid, to reach the parsing behind it.

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/small_checkpoint.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/checkpoint/shard_reader.h"
#include "torchps/storage/crc32c.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  FaultyFileSystem files;
  {
    const auto file = files.CreateFile("shard");
    FUZZ_CHECK(file.ok() && (*file)->Append(bytes).ok());
  }
  ShardInfo info;
  info.set_bytes(size);
  info.set_crc32c(Crc32c(0, bytes));
  const auto shard =
      ShardReader::Open(&files, "shard", SmallShardHeader(), info, SmallShardBlocks());
  if (!shard.ok()) return 0;
  BlockBuffer block;
  for (size_t i = 0; i < (*shard)->blocks().size(); ++i) {
    FUZZ_CHECK((*shard)->ReadBlock(i, &block).ok());
    FUZZ_CHECK(static_cast<int64_t>(block.values.size()) == block.range.length);
    FUZZ_CHECK(block.ledger.size() <= static_cast<size_t>(kMaxSlots));
    FUZZ_CHECK(MissedSteps::Check(block.missed, block.range.length, block.version).ok());
  }
  return 0;
}
