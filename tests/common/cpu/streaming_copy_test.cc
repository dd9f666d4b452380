#include "torchps/common/cpu/streaming_copy.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

TEST(StreamingCopyTest, CopiesExactlyAtAnyLengthAndAlignment) {
  constexpr size_t kRoom = 40000;
  constexpr uint8_t kUntouched = 0xa5;
  uint64_t random = 7;
  std::vector<uint8_t> source(kRoom);
  for (uint8_t& byte : source) byte = static_cast<uint8_t>(UniformBelow(random, 256));
  for (const size_t bytes : {0, 1, 63, 64, 4096, 16383, 16384, 16385, 16448, 32768, 39000}) {
    for (const size_t from : {0, 1, 4, 16, 60}) {
      for (const size_t to : {0, 1, 4, 32, 63}) {
        std::vector<uint8_t> expected(kRoom, kUntouched);
        std::copy_n(source.begin() + from, bytes, expected.begin() + to);
        std::vector<uint8_t> destination(kRoom, kUntouched);
        StreamingCopy(destination.data() + to, source.data() + from, bytes);
        ASSERT_EQ(destination, expected) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace torchps
