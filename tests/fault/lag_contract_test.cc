// Tests the lag contract (consistency.lag: the server's rule for pushes with a large lag) from a
// worker's side, over real gRPC.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_harness.h"
#include "tests/testing/plain_worker.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"
#include "torchps/server/server.h"

namespace torchps {
namespace {

class LagContractTest : public ::testing::Test {
 protected:
  void Start(const std::string& lag_contract, int workers) {
    Server::Options options;
    options.clock = &clock_;
    auto server = Server::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    JobHarness::Options model;
    model.trained = 64;
    model.workers = workers;
    model.job = absl::StrCat("optimizer { learning_rate: 0.5 } consistency { staleness_bound: -1 ",
                             "lag { ", lag_contract, " } } membership { lease_seconds: 600 }");
    for (SlotId slot = 0; slot < workers; ++slot) {
      HelloRequest hello = JobHarness::Hello(model);
      hello.set_slot(slot);
      workers_.push_back(
          std::make_unique<PlainWorker>(PlainChannel(server_->address()), std::move(hello)));
      ASSERT_TRUE(workers_.back()->Hello().ok());
    }
    ASSERT_TRUE(workers_[0]->Initialize(0).ok());
  }

  SteadyClock clock_;
  std::unique_ptr<Server> server_;
  std::vector<std::unique_ptr<PlainWorker>> workers_;
};

// Counts the verdicts of one slot and checks them against the REJECT contract.
class VerdictBook {
 public:
  explicit VerdictBook(int64_t max_lag) : max_lag_(max_lag) {}

  void Take(const PushReply& reply) {
    for (const BlockVerdict& verdict : reply.block()) {
      const std::string where = absl::StrCat("block ", verdict.block(), " lag ", verdict.lag());
      switch (verdict.verdict()) {
        case ACCEPTED:
          EXPECT_LE(verdict.lag(), max_lag_) << where;
          break;
        case REJECTED_STALE:
          EXPECT_GT(verdict.lag(), max_lag_) << where;
          break;
        default:
          ADD_FAILURE() << where << ": verdict " << verdict.verdict();
      }
      ++counts_[verdict.verdict()];
      if (verdict.verdict() != REJECTED_STALE) ++applied_[verdict.block()];
    }
  }

  int64_t count(Verdict verdict) const {
    const auto it = counts_.find(verdict);
    return it == counts_.end() ? 0 : it->second;
  }
  uint64_t applied(BlockId block) const {
    const auto it = applied_.find(block);
    return it == applied_.end() ? 0 : it->second;
  }

 private:
  const int64_t max_lag_;
  std::map<Verdict, int64_t> counts_;
  std::map<BlockId, uint64_t> applied_;
};

TEST_F(LagContractTest, RejectsPushesAboveMaxLag) {
  Start("policy: REJECT max_lag: 2", 2);
  PlainWorker& fast = *workers_[0];
  PlainWorker& slow = *workers_[1];
  Step fast_step = 0;
  for (Step slow_step = 1; slow_step <= 24; ++slow_step) {
    ASSERT_TRUE(slow.Pull(slow_step - 1).ok());
    const int64_t lag = slow_step % 6;
    for (int64_t i = 0; i < lag; ++i) {
      ASSERT_TRUE(fast.Pull(fast_step).ok());
      ASSERT_TRUE(fast.Push(++fast_step, 2.0f).ok());
    }
    const auto reply = slow.Push(slow_step, 16.0f);
    ASSERT_TRUE(reply.ok()) << reply.status();
    for (const BlockVerdict& verdict : reply->block()) {
      EXPECT_EQ(verdict.lag(), lag);
      EXPECT_EQ(verdict.verdict(), lag > 2 ? REJECTED_STALE : ACCEPTED);
    }
  }
  const auto status = slow.Status();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->lag().max(), 2);
}

TEST_F(LagContractTest, RejectsOnlyPushesAboveMaxLagWhenWorkersPushConcurrently) {
  constexpr int kWorkers = 4;
  constexpr int64_t kMaxLag = 2;
  constexpr Step kSteps = 200;
  constexpr Step kStragglerSteps = 24;
  Start(absl::StrCat("policy: REJECT max_lag: ", kMaxLag), kWorkers);

  // Slot 0 is the straggler: each step lasts for ten pushes by other slots.
  std::vector<VerdictBook> accounting(kWorkers, VerdictBook(kMaxLag));
  std::atomic<Step> straggler_step{0};
  std::atomic<int64_t> others_pushed{0};
  std::vector<std::thread> threads;
  for (SlotId slot = 1; slot < kWorkers; ++slot) {
    threads.emplace_back([&, slot] {
      PlainWorker& worker = *workers_[slot];
      // Pushes while the straggler runs, so that the straggler's gradients become stale.
      for (Step step = 1; step <= kSteps || straggler_step < kStragglerSteps; ++step) {
        ASSERT_TRUE(worker.Pull(step - 1).ok());
        const auto reply = worker.Push(step, 1.0f);
        ASSERT_TRUE(reply.ok()) << reply.status();
        accounting[slot].Take(*reply);
        ++others_pushed;
      }
    });
  }
  threads.emplace_back([&] {
    for (Step step = 1; step <= kStragglerSteps; ++step) {
      EXPECT_TRUE(workers_[0]->Pull(step - 1).ok());
      const int64_t target = others_pushed + 10;
      EXPECT_TRUE(Eventually([&] { return others_pushed >= target; }));
      const auto reply = workers_[0]->Push(step, 1.0f);
      EXPECT_TRUE(reply.ok()) << reply.status();
      if (reply.ok()) accounting[0].Take(*reply);
      straggler_step = step;
    }
    straggler_step = kStragglerSteps;  // also after a failure, to end the other threads
  });
  for (std::thread& thread : threads) thread.join();

  EXPECT_GT(accounting[0].count(REJECTED_STALE), 0) << "the straggler was never stale";
  int64_t accepted = 0;
  int64_t rejected = 0;
  for (const VerdictBook& book : accounting) {
    accepted += book.count(ACCEPTED);
    rejected += book.count(REJECTED_STALE);
  }
  const auto status = workers_[0]->Status(/*include_ledger=*/true);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->verdicts().accepted(), accepted);
  EXPECT_EQ(status->verdicts().rejected(), rejected);
  for (const LedgerEntryStatus& row : status->ledger()) {
    EXPECT_EQ(row.applied(), accounting[row.slot()].applied(row.block()))
        << "slot " << row.slot() << " block " << row.block();
  }
  std::printf("straggler: %ld accepted, %ld rejected; all: %ld, %ld\n",
              accounting[0].count(ACCEPTED), accounting[0].count(REJECTED_STALE), accepted,
              rejected);
}

TEST_F(LagContractTest, ScalesGradientsByFreeLagOverLag) {
  constexpr int64_t kFreeLag = 3;
  Start(absl::StrCat("policy: WEIGH free_lag: ", kFreeLag), 2);
  PlainWorker& fast = *workers_[0];
  PlainWorker& slow = *workers_[1];
  uint64_t random = 20240607;
  std::printf("seed %lu\n", random);
  Step fast_step = 0;
  for (Step step = 1; step <= 40; ++step) {
    ASSERT_TRUE(slow.Pull(step - 1).ok());
    const int64_t lag = static_cast<int64_t>(UniformBelow(random, 12));
    for (int64_t i = 0; i < lag; ++i) {
      ASSERT_TRUE(fast.Pull(fast_step).ok());
      ASSERT_TRUE(fast.Push(++fast_step, 0.0f).ok());  // raises the version, not the values
    }
    ASSERT_TRUE(fast.ReadOnlyPull().ok());
    const float before = fast.values()[0][0];
    const float gradient = 1.0f + static_cast<float>(UniformBelow(random, 100));
    const auto reply = slow.Push(step, gradient);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_TRUE(fast.ReadOnlyPull().ok());

    const double factor = lag > kFreeLag ? static_cast<double>(kFreeLag) / lag : 1.0;
    const double expected = before - 0.5 * factor * gradient;
    for (const BlockVerdict& verdict : reply->block()) {
      EXPECT_EQ(verdict.lag(), lag);
      EXPECT_EQ(verdict.verdict(), lag > kFreeLag ? SCALED : ACCEPTED);
      for (const float value : fast.values()[verdict.block()]) {
        // The factor, the gradient, the product and the sum are each rounded once.
        ASSERT_NEAR(value, expected, 4 * 6e-8 * (std::abs(expected) + gradient)) << "lag " << lag;
      }
    }
  }
}

}  // namespace
}  // namespace torchps
