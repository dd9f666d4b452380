#include "torchps/tools/drill/fault_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "absl/strings/match.h"

namespace torchps {
namespace {

FaultRule Rule(Fault::Kind kind, const std::string& text) {
  const auto rule = ParseFaultRule(kind, text, 2, 3);
  EXPECT_TRUE(rule.ok()) << rule.status();
  return *rule;
}

// Returns the complete schedule as (time, fault) pairs.
std::vector<std::pair<absl::Duration, Fault>> Play(FaultSchedule schedule) {
  std::vector<std::pair<absl::Duration, Fault>> played;
  while (schedule.NextAt() < absl::InfiniteDuration()) {
    const absl::Duration at = schedule.NextAt();
    for (const Fault& fault : schedule.Take(at)) played.push_back({at, fault});
  }
  return played;
}

TEST(FaultSchedule, RepeatedFaultsKeepTheirRateAndHitAllWorkers) {
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

TEST(FaultSchedule, SeedDeterminesTheSchedule) {
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

// Parses a rule for workers of two processes each.
FaultRule StagedRule(Fault::Kind kind, const std::string& text) {
  const auto rule = ParseFaultRule(kind, text, 2, 3, /*stages=*/2);
  EXPECT_TRUE(rule.ok()) << rule.status();
  return *rule;
}

TEST(FaultSchedule, StagesDoNotChangeFaultTimesAndAllProcessesAreHit) {
  FaultSchedule::Options options;
  options.rules = {StagedRule(Fault::Kind::kKill, "worker:every=1s"),
                   StagedRule(Fault::Kind::kKill, "server:every=1s")};
  options.servers = 2;
  options.workers = 3;
  options.length = absl::Seconds(100);
  const auto whole = Play(FaultSchedule(options));
  options.stages = 2;
  const auto staged = Play(FaultSchedule(options));
  std::set<PartName> reached;
  ASSERT_EQ(staged.size(), whole.size());
  for (size_t i = 0; i < staged.size(); ++i) {
    const PartName& part = staged[i].second.part;
    EXPECT_EQ(staged[i].first, whole[i].first);
    EXPECT_EQ(part.index, whole[i].second.part.index);
    EXPECT_EQ(whole[i].second.part.stage, -1);
    if (part.is_server) {
      EXPECT_EQ(part.stage, -1);
    } else {
      reached.insert(part);
    }
  }
  EXPECT_EQ(reached.size(), 3u * 2u);
}

TEST(FaultSchedule, ARuleMayNameOneStageOfAWorker) {
  FaultSchedule::Options options;
  options.rules = {StagedRule(Fault::Kind::kFreeze, "worker.2.1:at=3s")};
  options.workers = 3;
  options.stages = 2;
  options.length = absl::Seconds(10);
  const auto played = Play(FaultSchedule(options));
  ASSERT_EQ(played.size(), 2u);
  EXPECT_EQ(played[0].second.part.text(), "worker 2 stage 1");
  EXPECT_EQ(played[1].second.kind, Fault::Kind::kThaw);
  EXPECT_EQ(played[1].second.part, played[0].second.part);
}

TEST(FaultRule, RejectsARuleForAProcessThatDoesNotExist) {
  const std::tuple<Fault::Kind, const char*, int, const char*> cases[] = {
      {Fault::Kind::kKill, "worker.1.2:at=1s", 2,
       "there is no worker.1.2: the stages of a worker are numbered 0 to 1"},
      {Fault::Kind::kKill, "worker.1.:at=1s", 2, "the stages of a worker are numbered 0 to 1"},
      {Fault::Kind::kKill, "worker.3.1:at=1s", 2,
       "there is no worker.3.1: workers are numbered 0 to 2"},
      {Fault::Kind::kKill, "worker.1.0:at=1s", 0, "workers are numbered 0 to 2"},
      {Fault::Kind::kKill, "server.1.0:at=1s", 2, "servers are numbered 0 to 1"},
      {Fault::Kind::kCut, "worker.1.0:at=1s", 2,
       "network faults apply to all processes of a worker"},
  };
  for (const auto& [kind, text, stages, words] : cases) {
    const auto rule = ParseFaultRule(kind, text, 2, 3, stages);
    EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(rule.status().message(), words)) << rule.status();
  }
}

TEST(FaultSchedule, ThawsFrozenProcessesAfterTheDrillEnds) {
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

// Plays a single rule against two servers and four workers.
std::vector<std::pair<absl::Duration, Fault>> PlayRule(Fault::Kind kind, const std::string& text) {
  FaultSchedule::Options options;
  options.rules = {Rule(kind, text)};
  options.servers = 2;
  options.workers = 4;
  options.length = absl::Seconds(100);
  return Play(FaultSchedule(options));
}

TEST(FaultSchedule, ACutLinkIsJoinedAfterItsTime) {
  const auto played = PlayRule(Fault::Kind::kCut, "worker.1-server.0:at=3s:for=2s");
  ASSERT_EQ(played.size(), 2u);
  EXPECT_EQ(played[0].second.kind, Fault::Kind::kCut);
  EXPECT_EQ(played[0].second.links, (std::vector<NetworkLink>{{1, 0}}));
  EXPECT_EQ(played[1].first, absl::Seconds(5));
  EXPECT_EQ(played[1].second.kind, Fault::Kind::kJoin);
  EXPECT_EQ(played[1].second.links, played[0].second.links);
}

TEST(FaultSchedule, WorkerPartitionsHitAllServersOverTime) {
  std::set<NetworkLink> reached;
  for (const auto& [at, fault] : PlayRule(Fault::Kind::kReset, "worker:every=1s")) {
    ASSERT_EQ(fault.links.size(), 1u);
    EXPECT_EQ(fault.links[0].worker, fault.part.index);
    reached.insert(fault.links[0]);
  }
  EXPECT_EQ(reached.size(), 4u * 2u);
}

TEST(FaultSchedule, ServerPartitionCutsAllWorkers) {
  const auto played = PlayRule(Fault::Kind::kCut, "server.1:at=3s");
  ASSERT_EQ(played.size(), 2u);
  EXPECT_EQ(played[0].second.links, (std::vector<NetworkLink>{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(played[1].first, absl::Seconds(8)) << "by default 5 s";
}

TEST(FaultSchedule, HalvesCutEachWorkerFromOneServer) {
  for (const auto& [at, fault] : PlayRule(Fault::Kind::kCut, "halves:every=10s")) {
    // Each worker is cut off from a single server, and each server from two workers.
    ASSERT_EQ(fault.links.size(), 4u);
    int of_server[2] = {0, 0};
    std::set<int> workers;
    for (const NetworkLink& link : fault.links) {
      ++of_server[link.server];
      workers.insert(link.worker);
    }
    EXPECT_EQ(workers.size(), 4u);
    EXPECT_EQ(of_server[0], 2);
  }
}

TEST(FaultSchedule, DiskLossIsInstantAndHitsAllServers) {
  std::set<int> reached;
  for (const auto& [at, fault] : PlayRule(Fault::Kind::kLoseDisk, "server:every=5s")) {
    EXPECT_EQ(fault.kind, Fault::Kind::kLoseDisk);
    EXPECT_TRUE(fault.is_signal());
    EXPECT_TRUE(fault.part.is_server);
    reached.insert(fault.part.index);
  }
  EXPECT_EQ(reached, (std::set<int>{0, 1}));
}

TEST(FaultSchedule, NetworkRulesDoNotShiftOtherFaults) {
  FaultSchedule::Options options;
  options.rules = {Rule(Fault::Kind::kKill, "server:every=1s")};
  options.servers = 2;
  options.length = absl::Seconds(10);
  const auto alone = Play(FaultSchedule(options));
  options.rules.push_back(Rule(Fault::Kind::kCut, "worker:every=1s"));
  std::vector<std::pair<absl::Duration, Fault>> kills;
  for (auto& each : Play(FaultSchedule(options))) {
    if (each.second.is_signal()) kills.push_back(std::move(each));
  }
  ASSERT_EQ(kills.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(kills[i].first, alone[i].first);
}

TEST(FaultSchedule, StartsNoFaultAfterTheLength) {
  FaultSchedule::Options options;
  options.rules = {Rule(Fault::Kind::kKill, "server:at=11s")};
  options.length = absl::Seconds(10);
  EXPECT_EQ(FaultSchedule(options).NextAt(), absl::InfiniteDuration());
}

TEST(FaultRule, RejectsMalformedRules) {
  const std::pair<const char*, const char*> cases[] = {
      {"sever:every=5s", "expected 'server' or 'worker'"},
      {"server.2:every=5s", "there is no server.2: servers are numbered 0 to 1"},
      {"worker.x:every=5s", "there is no worker.x"},
      {"server", "expected either every=DURATION or at=DURATION"},
      {"server:every=5s:at=5s", "expected either every=DURATION or at=DURATION"},
      {"server:5s", "'5s' is not a setting; expected every=5s or at=30s"},
      {"server:every=5", "'every=5' needs a duration"},
      {"server:every=-1s", "needs a duration"},
      {"server:every=5s:for=2s", "'for=2s' is not every=DURATION or at=DURATION"},
  };
  for (const auto& [text, words] : cases) {
    const auto rule = ParseFaultRule(Fault::Kind::kKill, text, 2, 3);
    EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(rule.status().message(), words)) << rule.status();
  }
}

TEST(FaultRule, RejectsMalformedNetworkRules) {
  const std::tuple<Fault::Kind, const char*, const char*> cases[] = {
      {Fault::Kind::kKill, "halves:every=5s", "--kill=halves:every=5s: expected 'server'"},
      {Fault::Kind::kKill, "worker.1-server.0:every=5s", "'worker.1-server.0' is not one part"},
      {Fault::Kind::kCut, "all:every=5s", "expected 'server' or 'worker', or 'halves',"},
      {Fault::Kind::kCut, "worker.1-server.2:every=5s", "there is no server.2"},
      {Fault::Kind::kCut, "server.1-worker.1:every=5s", "or a link like worker.1-server.0"},
      {Fault::Kind::kCut, "worker.1-worker.2:every=5s", "or a link like worker.1-server.0"},
      {Fault::Kind::kReset, "worker:every=5s:for=2s", "is not every=DURATION or at=DURATION"},
      {Fault::Kind::kCrowd, "worker:every=5s",
       "--half_open=worker:every=5s: half-open connections go to"},
      {Fault::Kind::kLoseDisk, "worker:every=5s", "--lose_disk=worker:every=5s: only servers keep"},
      {Fault::Kind::kLoseDisk, "server:at=5s:for=1s", "is not every=DURATION or at=DURATION"},
  };
  for (const auto& [kind, text, words] : cases) {
    const auto rule = ParseFaultRule(kind, text, 2, 3);
    EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(rule.status().message(), words)) << rule.status();
  }
}

}  // namespace
}  // namespace torchps
