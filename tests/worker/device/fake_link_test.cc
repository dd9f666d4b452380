#include "tests/worker/device/fake_link.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;

void Exhaust(FakeLink* link) {
  while (link->Step()) {
  }
}

TEST(FakeLinkTest, ACopyReadsLateAndPoisonsItsDestination) {
  FakeLink link(FakeLink::Options{});
  std::vector<float> device = {1};
  std::vector<float> host = {0};
  bool is_done = false;
  ASSERT_TRUE(link.Down(nullptr, device, absl::MakeSpan(host),
                        [&](const absl::Status& status) { is_done = status.ok(); })
                  .ok());
  EXPECT_TRUE(std::isnan(host[0]));
  EXPECT_FALSE(is_done);
  device[0] = 2;
  Exhaust(&link);
  EXPECT_THAT(host, ElementsAre(2));
  EXPECT_TRUE(is_done);
}

TEST(FakeLinkTest, CopiesAndComputationWaitForTheirMarks) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    FakeLink link({seed});
    std::vector<float> device = {0};
    std::vector<float> host = {0};
    link.Compute([&] { device[0] = 3; });
    ASSERT_TRUE(link.Down(*link.AfterCompute(), device, absl::MakeSpan(host), [](auto) {}).ok());
    std::vector<float> up = {4};
    std::vector<float> staging = {0};
    ASSERT_TRUE(link.Up(nullptr, up, absl::MakeSpan(staging)).ok());
    ASSERT_TRUE(link.ComputeAfter(*link.AfterUps()).ok());
    float found = 0;
    link.Compute([&] { found = staging[0]; });
    Exhaust(&link);
    EXPECT_THAT(host, ElementsAre(3)) << "seed " << seed;
    EXPECT_EQ(found, 4) << "seed " << seed;
  }
}

TEST(FakeLinkTest, WithoutMarksOperationsRunInAnyOrder) {
  bool was_first = false;
  bool was_last = false;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    FakeLink link({seed});
    std::vector<float> device = {0};
    std::vector<float> host = {0};
    link.Compute([&] { device[0] = 3; });
    ASSERT_TRUE(link.Down(nullptr, device, absl::MakeSpan(host), [](auto) {}).ok());
    Exhaust(&link);
    (host[0] == 3 ? was_last : was_first) = true;
  }
  EXPECT_TRUE(was_first);
  EXPECT_TRUE(was_last);
}

TEST(FakeLinkTest, AnErrorEndsCurrentWorkAndPersists) {
  // Operations 0 and 1 are the two calls of Down(). Operation 2 is the end of the first copy.
  FakeLink link({/*seed=*/1, /*own_thread=*/false, /*fail_at=*/2});
  std::vector<float> device = {1, 2};
  std::vector<float> host = {0, 0};
  std::vector<absl::Status> told;
  const auto tells = [&](const absl::Status& status) { told.push_back(status); };
  const absl::Span<float> to = absl::MakeSpan(host);
  ASSERT_TRUE(link.Down(nullptr, {&device[0], 1}, to.first(1), tells).ok());
  ASSERT_TRUE(link.Down(nullptr, {&device[1], 1}, to.last(1), tells).ok());
  link.AwaitDowns();
  const absl::Status error = absl::InternalError("operation 2 has failed");
  EXPECT_THAT(told, ElementsAre(error, error));
  EXPECT_EQ(link.AfterCompute().status(), error);
  EXPECT_EQ(link.AwaitUps(), error);
}

TEST(FakeLinkTest, CallersWaitForCopiesOnTheLinksThread) {
  FakeLink link({/*seed=*/1, /*own_thread=*/true});
  std::vector<float> device = {1};
  std::vector<float> host = {0};
  bool is_done = false;
  ASSERT_TRUE(link.Down(nullptr, device, absl::MakeSpan(host), [&](auto) { is_done = true; }).ok());
  link.AwaitDowns();
  EXPECT_TRUE(is_done);
  EXPECT_THAT(host, ElementsAre(1));
  host[0] = 5;
  ASSERT_TRUE(link.Up(nullptr, host, absl::MakeSpan(device)).ok());
  ASSERT_TRUE(link.ComputeAfter(*link.AfterUps()).ok());
  EXPECT_THAT(device, ElementsAre(5));
}

}  // namespace
}  // namespace torchps
