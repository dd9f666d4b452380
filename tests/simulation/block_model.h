#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/batch_model.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sgd_model.h"
#include "tests/simulation/world.h"
#include "torchps/checkpoint/shard_format.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.pb.h"
#include "torchps/transport/frame_codec.h"

namespace torchps::simulation {

// Models one block in the simplest way: a list of all changes of the values and the ledger.
// Compares the real block with the model.
class BlockModel {
 public:
  // Identifies a push.
  struct Name {
    SlotId slot = 0;
    Incarnation incarnation = 0;
    Step step = 0;
    friend bool operator<(const Name& a, const Name& b) {
      return std::tie(a.slot, a.incarnation, a.step) < std::tie(b.slot, b.incarnation, b.step);
    }
  };
  // State of the real block.
  struct State {
    bool initialized = false;
    Version version = 0;
    float value = 0;  // of each element
    std::map<SlotId, LedgerEntry> ledger;
  };
  // Returns the live slots that still must push to the round of `step` but are not in
  // `contributors`, and their clocks.
  using FindMissing =
      std::function<std::map<SlotId, Step>(Step step, const std::set<SlotId>& contributors)>;

  BlockModel(World* world, const Scenario* scenario, BlockId id);

  BlockId id() const { return id_; }
  Version version() const { return version_; }
  Step LastStep(SlotId slot) const;
  // True if the history contains this push, with any verdict.
  bool Has(const Name& name) const;
  const std::map<SlotId, LedgerEntry>& ledger() const { return ledger_; }

  // True if a gradient of the slot waits for the next update. WHOLE_BATCH only.
  bool Collects(SlotId slot) const { return batch_.Holds(slot); }
  bool Collects(const Name& name) const {
    const auto found = batch_.parts().find(name.slot);
    return found != batch_.parts().end() && found->second.incarnation == name.incarnation &&
           found->second.step == name.step;
  }
  bool collects_nothing() const { return batch_.empty(); }
  // Number of updates since the server started. WHOLE_BATCH only.
  struct Updates {
    uint64_t made = 0;
    uint64_t early = 0;
  };
  const Updates& updates() const { return updates_; }

  void Initialize() { initialized_ = true; }

  // Reports that the server accepted this frame. `restored` is true if the server restored the job.
  void Push(const PushHeader& header, bool restored);

  // Compares the model with the block's current state, after all earlier reports.
  void Observe(const State& state, const FindMissing& find_missing, const BatchModel::Slots& slots);

  // Reports that the worker got this verdict on the push.
  void Acknowledge(const Name& name, const BlockVerdict& verdict);

  // Reports that the restarted server restored `state`, and checks that the history contains it. In
  // SYNC the server may also have skipped rounds to align the blocks. Removes later changes from
  // the history and returns their acknowledged pushes.
  std::vector<Name> Restore(const State& state);

 private:
  // Describes one change: of a slot's ledger entry, of version and values, or of both.
  struct Event {
    std::optional<SlotId> slot;
    LedgerEntry entry;
    Version version = 0;
    SgdModel::State element;
    bool whole = true;  // false for all but the last contributor of an update
    bool acknowledged = false;
  };
  struct Contribution {
    LedgerEntry entry;
    double gradient = 0;
    double weight = 0;
    bool absent = false;
  };

  static bool Is(const Event& event, const Name& name);
  void PushAsync(const PushHeader& header, bool restored);
  void PushSync(const PushHeader& header, bool restored);
  void PushBatch(const PushHeader& header, bool restored);
  // Checks the update that the real block made since the last call, or that no update was due.
  void ObserveBatch(const State& state, const BatchModel::Slots& slots);
  void MakeUpdate(const std::set<SlotId>& live);
  // Ends the current round. `missing` is the result of FindMissing.
  void EndRound(const std::map<SlotId, Step>& missing);
  // Returns how long the current round waits for these slots after it reached the quorum
  // (quorum_since_).
  absl::Duration Grace(const std::map<SlotId, Step>& missing) const;
  void Note(std::optional<SlotId> slot, const LedgerEntry& entry);

  World* const world_;
  const Scenario* const scenario_;
  const BlockId id_;
  const SgdModel sgd_;
  bool initialized_ = false;
  Version version_ = 0;
  SgdModel::State element_;  // of each element
  // Includes pushes that wait for their round or batch.
  std::map<SlotId, LedgerEntry> ledger_;
  std::map<SlotId, Contribution> round_;
  // The end of the previous round. Empty if it ended before the server's restart, or in the first
  // round.
  std::optional<absl::Duration> began_;
  // The time since when at most `backup_workers` live slots are missing in the round (the quorum).
  std::optional<absl::Duration> quorum_since_;
  BatchModel batch_;
  // True if a push was collected since the last Observe().
  bool is_fed_ = false;
  Updates updates_;
  // Samples that pushes added to batches, and samples in all updates.
  int64_t accepted_samples_ = 0;
  int64_t updated_samples_ = 0;
  std::vector<Event> history_;
};

}  // namespace torchps::simulation
