#include "worker/device/work_end.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/manual_clock.h"
#include "tests/worker/device/fake_link.h"

namespace torchps {
namespace {

TEST(WorkEndTest, IsWhenAllThatWasGivenBeforeHasEnded) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    ManualClock clock;
    FakeLink link({seed});
    const std::vector<float> device = {1};
    std::vector<float> host = {0};
    bool is_computed = false;
    bool is_copied = false;
    link.Compute([&] { is_computed = true; });
    ASSERT_TRUE(
        link.Down(nullptr, device, absl::MakeSpan(host), [&](auto) { is_copied = true; }).ok());
    const WorkEnd end(&link, &clock);
    EXPECT_EQ(end.at(), absl::nullopt);
    while (link.Step() && !end.at().has_value()) clock.Advance(absl::Seconds(1));
    EXPECT_TRUE(is_computed && is_copied) << "seed " << seed;
    ASSERT_TRUE(end.at().has_value());
    EXPECT_EQ(*end.at(), clock.Now());
  }
}

TEST(WorkEndTest, OfALinkThatFailsIsNever) {
  ManualClock clock;
  // To mark what is computed, to begin, and to end.
  for (const int64_t fail_at : {0, 1, 2}) {
    FakeLink link({/*seed=*/1, /*own_thread=*/false, fail_at});
    const WorkEnd end(&link, &clock);
    while (link.Step()) {
    }
    EXPECT_EQ(end.at(), absl::nullopt);
    EXPECT_FALSE(link.AfterCompute().ok());
  }
}

}  // namespace
}  // namespace torchps
