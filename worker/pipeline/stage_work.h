#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "common/block_map.h"
#include "common/clock.h"
#include "common/element_runs.h"
#include "proto/job.pb.h"
#include "proto/replica.pb.h"
#include "worker/feed/batch_loader.h"
#include "worker/finish_gradient.h"
#include "worker/flat_model.h"
#include "worker/gradient/gradient_watch.h"
#include "worker/metric_sums.h"
#include "worker/pipeline/exchange.h"
#include "worker/pipeline/member_task.h"
#include "worker/pipeline/stage_passes.h"
#include "worker/precision/loss_scaler.h"

namespace torchps {

// What one process of a replica computes for the leader's orders: the gradient of its stage's
// parameters, and its part of an evaluation. Knows no server.
//
// Each process reads the samples that an order names for itself: the first stage for their inputs,
// the last one for what the objective wants. So none travels. A pass over a batch is cut into
// micro-batches, and those of all passes of a step follow each other without a break.
//
// Thread-compatible; all of it is done by the calling thread (and torch's), but for batches that
// threads of a loader make ahead, of the order's samples and of those that it says come next.
// Borrows model, exchange, map and clock. What the user's stage, objective or dataset throw or
// return comes back as a status.
class StageWork {
 public:
  struct Options {
    // Normalised, as the coordinator has confirmed it.
    JobSpec job;
    // Of this process's part.
    const BlockMap* block_map = nullptr;
    FlatModel* model = nullptr;
    Exchange* exchange = nullptr;
    const Clock* clock = nullptr;
    int loader_threads = 0;
    // A pass has ended, or its samples are there.
    std::function<void()> on_progress = [] {};
    // The scale of the losses is another one after this order.
    std::function<void(const LossScaler& scaler)> on_scale = [](const LossScaler&) {};
    // The first forward and the first backward pass of an order are about to begin: for tests.
    std::function<void(MemberPhase phase, int64_t order)> on_phase;
  };

  // What an order's gradient is, here.
  struct Gradient {
    Finite finite = Finite::kUnknown;  // of the whole model
    ElementRuns absent;
    double loss_sum = 0;  // over samples; the leader alone knows it
    absl::Duration data_time;
    absl::Duration compute_time;  // everything else but `before_gradient`
  };

  StageWork(const MemberTask& task, Options options);

  // Leaves in the model's gradients() and averaged() what the step pushes of this stage, clipped as
  // the whole model's gradient is. `before_gradient` runs before anything is added to gradients,
  // with the time that was computed so far. Errors as Learner::Compute's, and the exchange's.
  absl::StatusOr<Gradient> Train(
      int64_t number, const ReplicaOrder& order,
      const std::function<absl::Status(absl::Duration compute_time)>& before_gradient);

  // Batches that are made ahead.
  size_t ahead() const { return loader_.ahead(); }

  // Measures the model as it is on all test samples. The leader gets sums: samples, loss_sum and
  // metrics; what is returned to the others says nothing. No samples where there is no test set.
  absl::StatusOr<ReplicaReport> Evaluate(int64_t number);

 private:
  // A run of a batch's samples that a stage computes with at once.
  struct MicroBatch {
    int64_t pass_begin = 0;  // of the order's samples: its batch
    int64_t pass_size = 0;
    int64_t begin = 0;  // in the batch
    int64_t size = 0;
  };

  std::vector<MicroBatch> Cut(const ReplicaOrder& order) const;
  // A batch of the order's samples, or of those that follow them.
  BatchLoader::Pass PassAt(const ReplicaOrder& order, int64_t begin, int64_t size) const;
  // That one and those behind it, as far as the loader goes ahead.
  std::vector<BatchLoader::Pass> PassesFrom(const ReplicaOrder& order, int64_t begin) const;
  // The micro-batch's samples. The last batch that was fetched is kept.
  absl::StatusOr<Batch> Fetch(const ReplicaOrder& order, const MicroBatch& part);
  absl::StatusOr<Gradient> Compute(
      int64_t number, const ReplicaOrder& order,
      const std::function<absl::Status(absl::Duration compute_time)>& before_gradient);
  // Agrees with the others on whether the gradient is finite, and clips it.
  absl::Status Conclude(int64_t number, double loss_sum, Gradient* gradient);
  absl::StatusOr<ReplicaReport> Measure(int64_t number);
  // One round of an evaluation: so many batches of test samples from `first` on.
  absl::Status MeasureRound(int64_t number, int first, int batches, MetricSums* sums);
  void Tell(MemberPhase phase, int64_t number) const;

  const MemberTask task_;
  const Options options_;
  StagePasses passes_;
  BatchLoader loader_;
  GradientWatch watch_;
  // Of training.precision FLOAT16. The same in all processes, which have the same rulings.
  absl::optional<LossScaler> scaler_;
  // Where its batch begins in the order's samples, and the batch.
  int64_t fetched_ = -1;
  Batch batch_;
  absl::Duration data_time_;
};

}  // namespace torchps
