#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "proto/job.pb.h"
#include "tests/simulation/patience_model.h"

namespace torchps::simulation {

// A second implementation of the whole-batch rule for one block, written from the specification:
// the pushes collected for the next update, and whether that update may or must be made now.
class BatchModel {
 public:
  // A collected push.
  struct Part {
    Incarnation incarnation = 0;
    Step step = 0;
    int64_t lag = 0;  // in updates, on arrival
    int64_t samples = 0;
    int64_t share = 0;    // PushHeader.share
    double weight = 0;    // `samples`, or 0: withheld
    double gradient = 0;  // of every element; 0 if absent
    bool absent = false;
  };
  enum class Due { kNo, kMay, kMust };
  // The server's state outside the block.
  struct Slots {
    std::set<SlotId> live;
    const PatienceModel* patience = nullptr;
    absl::Duration now;
    // Whether any block of the server has collected something of the slot.
    std::function<bool(SlotId)> is_collected;
  };

  // REQUIRES: `job` is normalised and applies whole batches.
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
  // Samples that all parts, or the one added last, count as.
  int64_t fill() const;
  int64_t last_fill() const { return last_fill_; }

  // Samples of a whole batch, and the number that an update may lack.
  double Whole(const std::set<SlotId>& live) const;
  double Slack(const std::set<SlotId>& live) const;
  // Whether an update made now would be early, and the part of a batch it would count as. The last
  // update of the job is never early.
  bool IsEarly(const std::set<SlotId>& live) const;
  double PartOfBatch(const std::set<SlotId>& live) const;

  Due DueNow(const Slots& slots) const;

  // Samples of all gradients; 0: all are withheld.
  double Weight() const;
  // The mean gradient of every element, weighted by samples. REQUIRES: Weight() > 0.
  double Mean() const;
  // Whether every gradient lacks this block.
  bool IsAbsent() const;

 private:
  int64_t GetFill(const Part& part) const;
  // No samples are left in the job after this part.
  bool EndsJob(const Part& part) const { return !is_of_each_ && part.share > batch_samples_; }
  bool IsFull(const std::set<SlotId>& live) const;

  const int64_t batch_samples_;
  const bool is_of_each_;
  std::map<SlotId, Part> parts_;
  int64_t last_fill_ = 0;
};

}  // namespace torchps::simulation
