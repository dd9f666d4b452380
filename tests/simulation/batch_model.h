#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/patience_model.h"
#include "torchps/common/types.h"
#include "torchps/proto/job.pb.h"

namespace torchps::simulation {

// Implements the whole-batch rule for one block a second time, from docs/protocol.md. Holds the
// pushes collected for the next update, and decides if the update may or must happen now.
class BatchModel {
 public:
  // Describes a collected push.
  struct Part {
    Incarnation incarnation = 0;
    Step step = 0;
    int64_t lag = 0;  // in updates, on arrival
    int64_t samples = 0;
    int64_t share = 0;    // PushHeader.share
    double weight = 0;    // `samples`, or 0 if withheld
    double gradient = 0;  // of each element; 0 if `absent`
    bool absent = false;  // the step did not reach the block's parameters
  };
  enum class Due { kNo, kMay, kMust };
  // State of the server outside the block.
  struct Slots {
    std::set<SlotId> live;
    const PatienceModel* patience = nullptr;
    absl::Duration now;
    // Returns true if a block of the server collected a push of the slot.
    std::function<bool(SlotId)> is_collected;
  };

  // REQUIRES: `job` is normalized and applies whole batches.
  explicit BatchModel(const JobSpec& job)
      : batch_samples_(int64_t{job.training().batch_size()} * job.training().accumulate()),
        is_of_each_(!job.training().global_batch()) {}

  void Add(SlotId slot, const Part& part) {
    parts_[slot] = part;
    last_fill_ = GetFill(part);
  }
  void Clear() { parts_.clear(); }

  bool Holds(SlotId slot) const { return parts_.count(slot) > 0; }
  bool empty() const { return parts_.empty(); }
  const std::map<SlotId, Part>& parts() const { return parts_; }
  // Number of samples by which all parts, or the last added part, fill the batch: a part's share if
  // it is set and does not end the job, otherwise its samples.
  int64_t fill() const;
  int64_t last_fill() const { return last_fill_; }

  // Number of samples in a whole batch, and the number that the batch may lack (the slack).
  double Whole(const std::set<SlotId>& live) const;
  double Slack(const std::set<SlotId>& live) const;
  // IsEarly() is true if an update now would be early. PartOfBatch() is the factor for the update's
  // gradient: 1 unless it is early. The last update of the job is never early.
  bool IsEarly(const std::set<SlotId>& live) const;
  double PartOfBatch(const std::set<SlotId>& live) const;

  Due DueNow(const Slots& slots) const;

  // Number of samples of all gradients; 0 if all are withheld.
  double Weight() const;
  // Returns the mean gradient of an element, weighted by samples. REQUIRES: Weight() > 0.
  double Mean() const;
  // True if the block is absent from all gradients.
  bool IsAbsent() const;

 private:
  int64_t GetFill(const Part& part) const;
  // True if the part's share marks the end of the job's samples (PushFrame.share).
  bool EndsJob(const Part& part) const { return !is_of_each_ && part.share > batch_samples_; }
  bool IsFull(const std::set<SlotId>& live) const;

  const int64_t batch_samples_;
  const bool is_of_each_;
  std::map<SlotId, Part> parts_;
  int64_t last_fill_ = 0;
};

}  // namespace torchps::simulation
