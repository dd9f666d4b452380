#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "torchps/worker/stages/pipeline.h"

namespace torchps {
namespace {

constexpr int kForwardTime = 2;
constexpr int kBackwardTime = 3;

// Simulates the stages, each with its own order of steps. Each stage begins its next step when the
// stage is free and the step's inputs are ready. Steps take a fixed time, and transfers take none.
class Simulation {
 public:
  Simulation(int stages, int micro_batches)
      : next_(stages, 0),
        free_at_(stages, 0),
        forward_end_(stages, std::vector<int>(micro_batches, kNever)),
        backward_end_(stages, std::vector<int>(micro_batches, kNever)) {
    for (int stage = 0; stage < stages; ++stage) {
      orders_.push_back(OneForwardOneBackward(stage, stages, micro_batches));
    }
  }

  // Returns false if a step waits forever.
  bool Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages(); ++stage) {
        while (next_[stage] < orders_[stage].size() && Take(stage)) moved = true;
      }
    }
    for (int stage = 0; stage < stages(); ++stage) {
      if (next_[stage] < orders_[stage].size()) return false;
    }
    return true;
  }

  int makespan() const { return *std::max_element(free_at_.begin(), free_at_.end()); }
  const std::vector<PipelineStep>& order(int stage) const { return orders_[stage]; }

 private:
  static constexpr int kNever = -1;

  int stages() const { return static_cast<int>(orders_.size()); }

  // Runs the stage's next step if the step's inputs are ready.
  bool Take(int stage) {
    const PipelineStep& step = orders_[stage][next_[stage]];
    const int micro_batch = step.micro_batch;
    int ready = 0;
    if (step.forward) {
      if (stage > 0) ready = forward_end_[stage - 1][micro_batch];
    } else {
      EXPECT_NE(forward_end_[stage][micro_batch], kNever) << "backward before forward";
      if (stage + 1 < stages()) ready = backward_end_[stage + 1][micro_batch];
    }
    if (ready == kNever) return false;
    free_at_[stage] =
        std::max(free_at_[stage], ready) + (step.forward ? kForwardTime : kBackwardTime);
    (step.forward ? forward_end_ : backward_end_)[stage][micro_batch] = free_at_[stage];
    ++next_[stage];
    return true;
  }

  std::vector<std::vector<PipelineStep>> orders_;
  std::vector<size_t> next_;
  std::vector<int> free_at_;
  // Completion times by stage and micro-batch.
  std::vector<std::vector<int>> forward_end_;
  std::vector<std::vector<int>> backward_end_;
};

void ForEachPipeline(const std::function<void(int stages, int micro_batches)>& look) {
  for (int stages = 1; stages <= 9; ++stages) {
    for (int micro_batches = 1; micro_batches <= 25; ++micro_batches) {
      SCOPED_TRACE(absl::StrCat(stages, " stages, ", micro_batches, " micro-batches"));
      look(stages, micro_batches);
    }
  }
}

TEST(PipelineScheduleTest, EachPassRunsOnceInMicroBatchOrder) {
  ForEachPipeline([](int stages, int micro_batches) {
    for (int stage = 0; stage < stages; ++stage) {
      int forward = 0;
      int backward = 0;
      for (const PipelineStep& step : OneForwardOneBackward(stage, stages, micro_batches)) {
        EXPECT_EQ(step.micro_batch, step.forward ? forward++ : backward++);
        EXPECT_LE(backward, forward);
      }
      EXPECT_EQ(forward, micro_batches);
      EXPECT_EQ(backward, micro_batches);
    }
  });
}

TEST(PipelineScheduleTest, AStageHoldsOneActivationForItselfAndEachLaterStage) {
  ForEachPipeline([](int stages, int micro_batches) {
    for (int stage = 0; stage < stages; ++stage) {
      int held = 0;
      int most = 0;
      for (const PipelineStep& step : OneForwardOneBackward(stage, stages, micro_batches)) {
        held += step.forward ? 1 : -1;
        most = std::max(most, held);
      }
      EXPECT_EQ(most, std::min(stages - stage, micro_batches)) << "stage " << stage;
    }
  });
}

TEST(PipelineScheduleTest, NeverDeadlocksAndIdlesOnlyWhileItFillsAndDrains) {
  ForEachPipeline([](int stages, int micro_batches) {
    Simulation simulation(stages, micro_batches);
    ASSERT_TRUE(simulation.Run());
    EXPECT_EQ(simulation.makespan(), (micro_batches + stages - 1) * (kForwardTime + kBackwardTime));
  });
}

}  // namespace
}  // namespace torchps
