// Tests values lent to senders while pushes change the block and while it moves to shared memory:
// each image must keep the values of the image's version.

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"

namespace torchps {
namespace {

constexpr Step kSteps = 200;
constexpr int kPushers = 2;
// Number of images that a reader holds at a time, as a slow connection does.
constexpr size_t kHeld = 3;

// Returns true if each element is the initial 1 minus `version` gradients of a half.
bool IsWhole(const ParameterStore::Image& image) {
  const auto* const begin = reinterpret_cast<const float*>(image.values.begin());
  const float expected = 1.0f - 0.5f * static_cast<float>(image.version);
  return std::all_of(begin, begin + image.values.size() / sizeof(float),
                     [expected](float value) { return value == expected; });
}

TEST(LentValuesTest, ImagesStayConsistentDuringPushesAndMoves) {
  JobHarness::Options options;
  options.trained = 4096;
  options.block_elements = 4096;
  options.workers = kPushers;
  options.job = "consistency { staleness_bound: -1 }";
  JobHarness harness(options);
  for (SlotId slot = 0; slot < kPushers; ++slot) ASSERT_TRUE(harness.Enter(slot, 1).ok());
  ASSERT_EQ(harness.Initialize(0, 1, 1.0f), absl::OkStatus());
  ParameterStore& store = harness.job().store();

  std::atomic<bool> pushed{false};
  std::atomic<int> torn{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      std::deque<ParameterStore::Image> held;
      while (!pushed.load()) {
        auto image = store.Read(0);
        ASSERT_TRUE(image.ok()) << image.status();
        held.push_back(*std::move(image));
        if (held.size() <= kHeld) continue;
        if (!IsWhole(held.front())) ++torn;
        held.pop_front();
      }
    });
  }
  std::vector<std::thread> pushers;
  for (SlotId slot = 0; slot < kPushers; ++slot) {
    pushers.emplace_back([&, slot] {
      for (Step step = 1; step <= kSteps; ++step) {
        ASSERT_EQ(harness.Frame(slot, 1, step, 0, 0.5f, /*base=*/0), absl::OkStatus());
        if (slot == 0 && step == kSteps / 2) {
          ASSERT_TRUE(store.Share().ok());
        }
      }
    });
  }
  for (std::thread& pusher : pushers) pusher.join();
  pushed.store(true);
  for (std::thread& reader : readers) reader.join();

  EXPECT_EQ(torn.load(), 0);
  const auto last = store.Read(0);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->version, kPushers * kSteps);
  EXPECT_TRUE(IsWhole(*last));
}

}  // namespace
}  // namespace torchps
