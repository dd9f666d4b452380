#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/ids.h"
#include "proto/checkpoint.pb.h"
#include "proto/coordinator.pb.h"

namespace torchps {

// The evaluations of a job: which epochs are to be evaluated, by which slot, and what came out.
// Each is reported once; one whose slot died before is for the next slot that asks.
//
// Thread-compatible. A plain value.
class Evaluations {
 public:
  // `best_by`: the job's training.best_by.
  explicit Evaluations(std::string best_by = "") : best_by_(std::move(best_by)) {}

  // `epoch`, counted from 1, is to be evaluated: by `slot`, or once that is dead, by any slot that
  // asks.
  void Open(int epoch, SlotId slot);

  // The first epoch that waits for `slot` or for any slot, now `slot`'s; 0: none.
  int TakeFor(SlotId slot);

  // REQUIRES: `epoch` was opened.
  void Report(int epoch, const EvaluationResult& result);
  // `slot` is the one that has reported `epoch`.
  bool WasReportedBy(SlotId slot, int epoch) const;

  // `slot` is dead: what it has not reported is for any slot.
  void Release(SlotId slot);

  bool has(int epoch) const { return by_epoch_.count(epoch) > 0; }
  bool AllReported() const;
  // The latest epoch that was opened; 0: none.
  int latest() const { return by_epoch_.empty() ? 0 : by_epoch_.rbegin()->first; }
  // The highest score of those reported.
  std::optional<double> BestScore() const;
  // How many epochs were reported after the last one that was better, by more than `min_delta`,
  // than all before it.
  int EpochsWithoutBest(double min_delta) const;
  // Appends the results that there are, by epoch.
  void AddResultsTo(JobStatus* status) const;

  void SaveTo(CoordinatorState* state) const;
  // One of those that SaveTo() has saved.
  void Restore(const EvaluationState& saved);

 private:
  struct Evaluation {
    // The slot that is to do it or is at it; -1: the next one that asks.
    SlotId slot = -1;
    bool reported = false;
    EvaluationResult result;
  };

  std::string best_by_;
  std::map<int, Evaluation> by_epoch_;
};

}  // namespace torchps
