#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torchps/client/stage_layouts.h"
#include "torchps/common/block_map.h"
#include "torchps/common/clock.h"
#include "torchps/common/element_runs.h"
#include "torchps/data/dataset.h"
#include "torchps/proto/job.pb.h"
#include "torchps/proto/replica.pb.h"
#include "torchps/worker/evaluation.h"
#include "torchps/worker/feed/batch_loader.h"
#include "torchps/worker/finish_gradient.h"
#include "torchps/worker/flat_model.h"
#include "torchps/worker/gradient/gradient_watch.h"
#include "torchps/worker/objective.h"
#include "torchps/worker/pipeline/exchange.h"
#include "torchps/worker/pipeline/stage_passes.h"
#include "torchps/worker/precision/precision.h"
#include "torchps/worker/stages/stages.h"
#include "torchps/worker/training_observer.h"

namespace torchps {

// Describes the training task of one process of a replica: one stage of the model, and all of the
// data.
//
// Copies share the module and the datasets.
struct MemberTask {
  ModelStage stage;
  // Used by the last stage's process; a Pass's module is that stage.
  Objective objective;
  DataSource data;
  // As in Callbacks::augment; may be null.
  BatchLoader::Augment augment = nullptr;
  // True if the stage's tensors keep their names in the undivided model. Otherwise, the names in
  // the whole model start with the stage number, as in torchps::Stages.
  bool has_whole_names = false;

  // Returns the tensor's name on servers, in model files and in parameter groups.
  std::string FullName(int number, const std::string& name) const {
    return has_whole_names ? name : torchps::FullName(number, name);
  }
};

// Phases of a step in a replica process: before the pull, at the first forward pass, at the first
// backward pass, between the report of the gradient to the leader and the push, and during the
// push. The leader reports only kForward and kBackward.
enum class MemberPhase { kPull, kForward, kBackward, kComputed, kPush };

// Thrown by MemberOptions::on_phase in tests to simulate a killed process. It bypasses all code
// that converts exceptions to statuses, so the process sends no farewell to the other processes.
struct MemberKilled {};

// Executes the leader's orders in one replica process: computes the gradient of the stage's
// parameters, and the stage's part of an evaluation. Does not contact servers.
//
// The processes read the samples of an order themselves, so samples are not sent. The first stage
// reads the inputs, and the last stage reads the data for the objective. Each batch is cut into
// micro-batches, and the micro-batches of all passes of a step run without a break.
//
// Thread-compatible; computes on the calling thread (and torch's threads). Loader threads prepare
// the batches of this order and of the upcoming samples (ReplicaOrder.upcoming). Borrows model,
// exchange, map and clock. Errors and exceptions of the user's stage, objective or dataset are
// returned as statuses.
class StageWork {
 public:
  struct Options {
    // Normalized, as confirmed by the coordinator.
    JobSpec job;
    // The blocks of this process's part of the model.
    const BlockMap* block_map = nullptr;
    FlatModel* model = nullptr;
    Exchange* exchange = nullptr;
    const Clock* clock = nullptr;
    int loader_threads = 0;
    // Borrowed.
    TrainingObserver* observer = TrainingObserver::None();
    // For tests: called before the first forward and the first backward pass of an order.
    std::function<void(MemberPhase phase, int64_t order)> on_phase;
  };

  // Result of an order in this process.
  struct Gradient {
    Finite finite = Finite::kUnknown;  // of the whole model
    ElementRuns absent;
    double loss_sum = 0;  // over samples; set in the leader only
    absl::Duration data_time;
    absl::Duration compute_time;  // the rest, except `before_gradient`
  };

  StageWork(const MemberTask& task, Options options);

  // Computes this stage's part of the step's push into the model's gradients() and averaged(),
  // clipped by the norm of the whole model's gradient. Calls `before_gradient` with the compute
  // time so far, before it adds to gradients. Returns errors of Learner::Compute and of the
  // exchange.
  absl::StatusOr<Gradient> Train(
      int64_t number, const ReplicaOrder& order,
      const std::function<absl::Status(absl::Duration compute_time)>& before_gradient);

  // Returns the number of batches that the loader prepares ahead.
  size_t ahead() const { return loader_.ahead(); }

  // Evaluates the current model on all test samples. Returns sums (samples, loss_sum and metrics)
  // in the leader only; the other processes' report is empty. Reports zero samples if there is no
  // test set.
  absl::StatusOr<ReplicaReport> Evaluate(int64_t number);

 private:
  // Consecutive samples of a batch that a stage computes at once.
  struct MicroBatch {
    int64_t pass_begin = 0;  // start of the batch in the order's samples
    int64_t pass_size = 0;
    int64_t begin = 0;  // first sample, in the batch
    int64_t size = 0;
  };

  std::vector<MicroBatch> Cut(const ReplicaOrder& order) const;
  // Returns the pass of `size` samples from `begin` on, counted over the order's samples followed
  // by the upcoming samples.
  BatchLoader::Pass PassAt(const ReplicaOrder& order, int64_t begin, int64_t size) const;
  // Returns the pass at `begin` and the next passes that the loader prepares ahead.
  std::vector<BatchLoader::Pass> PassesFrom(const ReplicaOrder& order, int64_t begin) const;
  // Returns the samples of the micro-batch. Keeps the last fetched batch.
  absl::StatusOr<Batch> Fetch(const ReplicaOrder& order, const MicroBatch& part);
  absl::StatusOr<Gradient> Compute(
      int64_t number, const ReplicaOrder& order,
      const std::function<absl::Status(absl::Duration compute_time)>& before_gradient);
  // Agrees with the other processes whether the gradient is finite, and clips it.
  absl::Status Conclude(int64_t number, double loss_sum, Gradient* gradient);
  absl::StatusOr<ReplicaReport> Measure(int64_t number);
  // Runs one round of an evaluation: `batches` batches of test samples, starting at `first`.
  absl::Status MeasureRound(int64_t number, int first, int batches, MetricSums* sums);
  void Tell(MemberPhase phase, int64_t number) const;

  const MemberTask task_;
  const Options options_;
  StagePasses passes_;
  BatchLoader loader_;
  GradientWatch watch_;
  // Set for training.precision FLOAT16. Identical in all processes, because all receive the same
  // rulings (GradientRuling).
  std::optional<LossScaler> scaler_;
  // Start of the last fetched batch in the order's samples, and the batch.
  int64_t fetched_ = -1;
  Batch batch_;
  absl::Duration data_time_;
};

}  // namespace torchps
