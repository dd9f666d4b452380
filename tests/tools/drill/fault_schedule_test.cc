#include "tools/drill/fault_schedule.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/match.h"

namespace torchps {
namespace {

FaultRule Rule(Fault::Kind kind, const std::string& text) {
  const auto rule = ParseFaultRule(kind, text, 2, 3);
  EXPECT_TRUE(rule.ok()) << rule.status();
  return *rule;
}

// All of a schedule, as (time, fault).
std::vector<std::pair<absl::Duration, Fault>> Play(FaultSchedule schedule) {
  std::vector<std::pair<absl::Duration, Fault>> played;
  while (schedule.NextAt() < absl::InfiniteDuration()) {
    const absl::Duration at = schedule.NextAt();
    for (const Fault& fault : schedule.Take(at)) played.push_back({at, fault});
  }
  return played;
}

TEST(FaultSchedule, WhatComesOftenComesAboutSoOftenAndReachesEveryPart) {
  FaultSchedule::Options options;
  options.rules = {Rule(Fault::Kind::kKill, "worker:every=2s")};
  options.workers = 3;
  options.length = absl::Seconds(100);
  const auto played = Play(FaultSchedule(options));
  EXPECT_GE(played.size(), 49u);
  EXPECT_LE(played.size(), 50u);
  std::map<PartName, int> hits;
  for (size_t i = 0; i < played.size(); ++i) {
    EXPECT_LE(absl::AbsDuration(played[i].first - absl::Seconds(2) * (i + 1)),
              absl::Milliseconds(500));
    ++hits[played[i].second.part];
  }
  EXPECT_EQ(hits.size(), 3u);
}

TEST(FaultSchedule, TheSeedIsTheSchedule) {
  FaultSchedule::Options options;
  options.rules = {Rule(Fault::Kind::kKill, "server:every=1s"),
                   Rule(Fault::Kind::kFreeze, "worker:every=700ms:for=300ms")};
  options.servers = 2;
  options.workers = 3;
  options.length = absl::Seconds(20);
  const auto same = [&](uint64_t other) {
    const auto a = Play(FaultSchedule(options));
    FaultSchedule::Options changed = options;
    changed.seed = other;
    const auto b = Play(FaultSchedule(changed));
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
      return x.first == y.first && x.second.part == y.second.part;
    });
  };
  EXPECT_TRUE(same(options.seed));
  EXPECT_FALSE(same(options.seed + 1));
}

TEST(FaultSchedule, WhatIsFrozenIsThawedThoughTheDrillIsOver) {
  FaultSchedule::Options options;
  options.rules = {Rule(Fault::Kind::kFreeze, "worker.2:at=9s:for=5s")};
  options.length = absl::Seconds(10);
  const auto played = Play(FaultSchedule(options));
  ASSERT_EQ(played.size(), 2u);
  EXPECT_EQ(played[0].first, absl::Seconds(9));
  EXPECT_EQ(played[0].second.kind, Fault::Kind::kFreeze);
  EXPECT_EQ(played[0].second.part.text(), "worker 2");
  EXPECT_EQ(played[1].first, absl::Seconds(14));
  EXPECT_EQ(played[1].second.kind, Fault::Kind::kThaw);
}

TEST(FaultSchedule, NothingBeginsAfterItsLength) {
  FaultSchedule::Options options;
  options.rules = {Rule(Fault::Kind::kKill, "server:at=11s")};
  options.length = absl::Seconds(10);
  EXPECT_EQ(FaultSchedule(options).NextAt(), absl::InfiniteDuration());
}

TEST(FaultRule, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"sever:every=5s", "expected 'server' or 'worker'"},
      {"server.2:every=5s", "there is no server.2: servers are numbered 0 to 1"},
      {"worker.x:every=5s", "there is no worker.x"},
      {"server", "expected either every=DURATION or at=DURATION"},
      {"server:every=5s:at=5s", "expected either every=DURATION or at=DURATION"},
      {"server:5s", "'5s' does not say when; expected every=5s or at=30s"},
      {"server:every=5", "'every=5' has no duration"},
      {"server:every=-1s", "has no duration"},
      {"server:every=5s:for=2s", "'for=2s' is not every=DURATION or at=DURATION"},
  };
  for (const auto& [text, words] : cases) {
    const auto rule = ParseFaultRule(Fault::Kind::kKill, text, 2, 3);
    EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(rule.status().message(), words)) << rule.status();
  }
}

}  // namespace
}  // namespace torchps
