#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "tests/worker/device/fake_link.h"
#include "torchps/worker/device/device_link.h"

namespace torchps {
namespace {

TEST(WorkEndTest, IsSetAfterAllEarlierWork) {
  int copied_first = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    ManualClock clock;
    FakeLink link({seed});
    const std::vector<float> device = {1};
    std::vector<float> host = {0};
    bool is_computed = false;
    bool is_copied = false;
    link.Compute([&] { is_computed = true; });
    const WorkEnd end(&link, &clock);
    ASSERT_TRUE(link.Down(nullptr, device, absl::MakeSpan(host),
                          [&](auto) {
                            is_copied = true;
                            copied_first += is_computed ? 0 : 1;
                          })
                    .ok());
    EXPECT_EQ(end.at(), std::nullopt);
    while (link.Step() && !end.at().has_value()) clock.Advance(absl::Seconds(1));
    EXPECT_TRUE(is_computed) << "seed " << seed;
    ASSERT_TRUE(end.at().has_value());
    EXPECT_EQ(*end.at(), clock.Now());
    link.AwaitDowns();
    EXPECT_TRUE(is_copied) << "seed " << seed;
  }
  EXPECT_GT(copied_first, 0)
      << "each copy waited for the computation, although copies carry no mark";
}

TEST(WorkEndTest, IsNeverSetIfTheLinkFails) {
  ManualClock clock;
  // Operation 0 makes the mark, and operation 1 waits for it. Either of them fails.
  for (const int64_t fail_at : {0, 1}) {
    FakeLink link({/*seed=*/1, /*own_thread=*/false, fail_at});
    const WorkEnd end(&link, &clock);
    while (link.Step()) {
    }
    EXPECT_EQ(end.at(), std::nullopt);
    EXPECT_FALSE(link.AfterCompute().ok());
  }
}

}  // namespace
}  // namespace torchps
