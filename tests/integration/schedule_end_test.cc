// Runs the coordinator, a server and slots of different speeds in virtual time. A schedule by
// samples ends with the job, even if pushes are rejected.

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "torchps/common/types.h"
#include "torchps/job/job_spec.h"
#include "torchps/job/schedule.h"
#include "torchps/server/coordinator/job_work.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/server/store/job_storage.h"

namespace torchps {
namespace {

constexpr int kSlots = 3;
constexpr int64_t kSamples = 3000;

std::string JobText(const std::string& more_of_the_schedule, const std::string& consistency) {
  return absl::StrCat(
      "optimizer { sgd {} learning_rate: 1 schedule { shape: COSINE final_fraction: 0.1 "
      "warmup_steps: 5 ",
      more_of_the_schedule,
      " } } training { epochs: 2 batch_size: 4 evaluate: false balance: EQUAL "
      "global_batch: false } ",
      "consistency { ", consistency, " }");
}

// Records the progress of each gradient that block 0 applied.
class AppliedJournal final : public JobStorage, public BlockJournal {
 public:
  absl::StatusOr<std::optional<Origin>> Open(const JobShare&, ParameterStore*) override {
    return std::optional<Origin>();
  }
  BlockJournal* journal() override { return this; }
  void Describe(DurabilityStatus*) override {}
  void Record(const Block& block, const BlockRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) override {
    if (record.kind == BlockRecord::Kind::kGradient && block.range.id == 0) {
      progress.push_back(record.terms.progress);
    }
  }
  void WhenDurable(std::function<void()> continuation) override { continuation(); }

  std::vector<uint32_t> progress;
};

struct Case {
  std::string consistency;
  double slowest = 1;  // step time of slot 2, in units of slot 0's; slot 1 needs 1.03
};

class ScheduleEndTest : public ::testing::TestWithParam<Case> {
 protected:
  struct Slot {
    MemberState member;
    double step_time = 1;
    // Virtual time at which the slot has computed its step. Infinite if the slot waits or is idle.
    double ready_at = 0;
    std::optional<DataLease> lease;
    int64_t taken = 0;
    Step clock = 0;
    Version base = 0;
    std::vector<LeaseRange> lost;
  };

  void SetUp() override {
    JobSpec spec;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        absl::StrCat("workers: ", kSlots, " model { name: 'test' } ",
                     JobText("", GetParam().consistency)),
        &spec));
    spec = *NormalizeJobSpec(spec);
    ASSERT_TRUE(CompleteJobSpec(&spec, kSamples).ok());
    ASSERT_EQ(spec.optimizer().schedule().by(), ScheduleSpec::SAMPLES);
    schedule_ = spec.optimizer().schedule();
    JobTerms terms;
    terms.job = spec;
    terms.train_samples = kSamples;
    work_ = std::make_unique<JobWork>(terms, /*keeps_models=*/false);
    is_sync_ = spec.consistency().mode() == ConsistencySpec::SYNC;
    batch_ = spec.training().batch_size();
    JobHarness::Options options;
    options.workers = kSlots;
    options.storage = &journal_;
    options.job = JobText(absl::StrCat("by: SAMPLES total_steps: ", schedule_.total_steps()),
                          GetParam().consistency);
    harness_ = std::make_unique<JobHarness>(options);
    const double speeds[] = {1, 1.03, GetParam().slowest};
    for (SlotId id = 0; id < kSlots; ++id) {
      Slot& slot = slots_.emplace_back();
      slot.member.set_slot(id);
      slot.member.set_incarnation(static_cast<uint64_t>(id) + 1);
      slot.step_time = speeds[id];
      ASSERT_TRUE(harness_->Enter(id, slot.member.incarnation()).ok());
    }
    ASSERT_TRUE(harness_->Initialize(0, 1, 0).ok());
  }

  Step rounds() { return harness_->job().ReadOnlyPull().min_clock; }

  // Starts a step of the slot. Returns false if the slot waits for a round or for data.
  bool Begin(Slot& slot, double now) {
    if (is_sync_) {
      if (slot.clock > rounds()) return false;
      slot.clock = rounds();
    }
    if (slot.lease.has_value() && slot.taken == slot.lease->end() - slot.lease->begin()) {
      NextWorkRequest finished;
      finished.set_slot(slot.member.slot());
      finished.set_incarnation(slot.member.incarnation());
      finished.set_finished_lease(slot.lease->id());
      for (const LeaseRange& range : slot.lost) *finished.add_lost() = range;
      slot.lost.clear();
      slot.lease.reset();
      EXPECT_TRUE(work_->Finish(finished, absl::ZeroDuration()).ok());
    }
    if (!slot.lease.has_value()) {
      NextWorkReply reply;
      if (!work_->HandOut(&slot.member, &reply)) return false;
      slot.lease = reply.lease();
      slot.taken = 0;
    }
    slot.base = harness_->GetVersion(0);
    slot.ready_at = now + slot.step_time;
    return true;
  }

  void Push(Slot& slot) {
    const DataLease& lease = *slot.lease;
    const auto size = static_cast<double>(lease.end() - lease.begin());
    PushHeader header;
    header.slot = slot.member.slot();
    header.incarnation = slot.member.incarnation();
    header.step = slot.clock + 1;
    header.base_version = slot.base;
    header.weight = static_cast<uint32_t>(batch_);
    header.progress =
        GetProgress(lease.progress_begin() + static_cast<double>(slot.taken) / size *
                                                 (lease.progress_end() - lease.progress_begin()));
    LeaseRange range;
    range.set_begin(slot.taken);
    slot.taken = std::min(slot.taken + batch_, lease.end() - lease.begin());
    range.set_end(slot.taken);
    for (BlockId block = 0; block < harness_->blocks(); ++block) {
      header.block = block;
      const absl::Status pushed = harness_->job().PushFrame(
          header, MakePayload(std::vector<float>(harness_->job().map().blocks()[block].length)));
      ASSERT_TRUE(pushed.ok()) << pushed;
    }
    ++slot.clock;
    harness_->job().FinishPush(header.slot, header.incarnation, header.step,
                               [&slot, range](const absl::StatusOr<PushReply>& reply) {
                                 ASSERT_TRUE(reply.ok()) << reply.status();
                                 const Verdict verdict = reply->block(0).verdict();
                                 if (verdict == LATE || verdict == REJECTED_STALE)
                                   slot.lost.push_back(range);
                               });
  }

  void Run() {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    double now = 0;
    for (Slot& slot : slots_) ASSERT_TRUE(Begin(slot, 0));
    while (true) {
      Slot& next =
          *std::min_element(slots_.begin(), slots_.end(),
                            [](const Slot& a, const Slot& b) { return a.ready_at < b.ready_at; });
      if (next.ready_at == kNever) break;
      now = next.ready_at;
      ASSERT_NO_FATAL_FAILURE(Push(next));
      next.ready_at = kNever;
      for (Slot& slot : slots_) {
        if (slot.ready_at == kNever) Begin(slot, now);
      }
    }
  }

  AppliedJournal journal_;
  std::unique_ptr<JobHarness> harness_;
  std::unique_ptr<JobWork> work_;
  ScheduleSpec schedule_;
  bool is_sync_ = false;
  int64_t batch_ = 0;
  std::vector<Slot> slots_;
};

TEST_P(ScheduleEndTest, TheLastAppliedPushUsesTheLastRateOfTheSchedule) {
  Run();
  ASSERT_GT(journal_.progress.size(), 100u);
  const absl::StatusOr<Schedule> schedule = Schedule::Create(schedule_);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const size_t applied = journal_.progress.size();
  const auto factor = [&](size_t push) {
    return schedule->Factor(static_cast<Version>(push), journal_.progress[push]);
  };
  EXPECT_NEAR(factor(applied - 1), 0.1, 0.01);
  // The schedule did not end earlier.
  EXPECT_NEAR(factor(applied / 2), 0.55, 0.05);
  EXPECT_GT(factor(applied * 9 / 10), 0.11);
  EXPECT_LT(factor(applied * 9 / 10), 0.14);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, ScheduleEndTest,
    ::testing::Values(Case{"mode: ASYNC staleness_bound: -1", 1.01},
                      Case{"mode: ASYNC staleness_bound: -1", 4.1},
                      Case{"mode: ASYNC staleness_bound: -1 lag { policy: WEIGH }", 4.1},
                      Case{"mode: ASYNC staleness_bound: -1 lag { policy: REJECT }", 4.1},
                      Case{"mode: ASYNC staleness_bound: -1 lag { policy: REJECT }", 20},
                      Case{"mode: SYNC", 4.1}, Case{"mode: SYNC backup_workers: 1", 1.01},
                      Case{"mode: SYNC backup_workers: 1", 4.1}));

}  // namespace
}  // namespace torchps
