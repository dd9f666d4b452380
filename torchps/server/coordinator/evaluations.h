#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "torchps/common/types.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/proto/coordinator.pb.h"

namespace torchps {

// Tracks the evaluations of a job: the epochs to evaluate, the assigned slots, and the results.
// Each evaluation is reported once. If a slot dies before it reports, the next slot that asks gets
// the evaluation.
//
// Thread-compatible. Value type.
class Evaluations {
 public:
  // `best_by` is the job's training.best_by.
  explicit Evaluations(std::string best_by = "") : best_by_(std::move(best_by)) {}

  // Opens the evaluation of `epoch`, counted from 1, for `slot`. Once `slot` is dead, or if it is
  // -1, any slot that asks may get it.
  void Open(int epoch, SlotId slot);

  // Assigns to `slot` the first epoch that waits for this slot or for any slot. Returns 0 if all
  // are assigned.
  int TakeFor(SlotId slot);

  // Records a result. REQUIRES: `epoch` was opened.
  void Report(int epoch, const EvaluationResult& result);
  // Returns true if `slot` reported `epoch`.
  bool WasReportedBy(SlotId slot, int epoch) const;

  // Makes the unreported evaluations of a dead slot available to any slot.
  void Release(SlotId slot);

  bool has(int epoch) const { return by_epoch_.count(epoch) > 0; }
  bool AllReported() const;
  // Returns the latest epoch that was opened, or 0.
  int latest() const { return by_epoch_.empty() ? 0 : by_epoch_.rbegin()->first; }
  // Returns the highest score of the reported evaluations.
  std::optional<double> BestScore() const;
  // Returns the number of epochs reported since the last new best. A score is a new best if it
  // exceeds the previous new best by more than `min_delta`.
  int EpochsWithoutBest(double min_delta) const;
  // Appends the reported results, ordered by epoch.
  void AddResultsTo(JobStatus* status) const;

  void SaveTo(CoordinatorState* state) const;
  // Restores one evaluation that SaveTo() saved.
  void Restore(const EvaluationState& saved);

 private:
  struct Evaluation {
    // The assigned slot; -1 for the next slot that asks.
    SlotId slot = -1;
    bool reported = false;
    EvaluationResult result;
  };

  std::string best_by_;
  std::map<int, Evaluation> by_epoch_;
};

}  // namespace torchps
