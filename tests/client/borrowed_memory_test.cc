#include "torchps/client/borrowed_memory.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace torchps {
namespace {

TEST(BorrowedMemoryTest, ReleasesMemoryThatIsNotBorrowed) {
  BorrowedMemory memory;
  EXPECT_TRUE(memory.TryRelease());
  memory.AwaitRelease();
}

TEST(BorrowedMemoryTest, WaitsForTheLastReference) {
  BorrowedMemory memory;
  std::shared_ptr<const void> reference = memory.reference();
  EXPECT_FALSE(memory.TryRelease());
  std::atomic<bool> is_gone{false};
  std::thread borrower([&] {
    is_gone = true;
    reference.reset();
  });
  memory.AwaitRelease();
  EXPECT_TRUE(is_gone);
  EXPECT_TRUE(memory.TryRelease());
  borrower.join();
}

}  // namespace
}  // namespace torchps
