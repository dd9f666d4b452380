#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/block_image.h"
#include "common/ids.h"
#include "proto/parameter_service.pb.h"
#include "tests/simulation/batch_model.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sgd_model.h"
#include "tests/simulation/world.h"
#include "wire/frame_codec.h"

namespace torchps::simulation {

// What one block must be by all that has happened to it, written down a second time as simply as
// can be: every change of its values and of its ledger, in order. Compares the block with that.
class BlockModel {
 public:
  // A push in the history.
  struct Name {
    SlotId slot = 0;
    Incarnation incarnation = 0;
    Step step = 0;
    friend bool operator<(const Name& a, const Name& b) {
      return std::tie(a.slot, a.incarnation, a.step) < std::tie(b.slot, b.incarnation, b.step);
    }
  };
  // A block as it is.
  struct State {
    bool initialized = false;
    Version version = 0;
    float value = 0;  // of every element
    std::map<SlotId, LedgerEntry> ledger;
  };
  // Live slots that have still to push to the round of this step, beside these, and their clocks.
  using FindMissing =
      std::function<std::map<SlotId, Step>(Step step, const std::set<SlotId>& contributors)>;

  BlockModel(World* world, const Scenario* scenario, BlockId id);

  BlockId id() const { return id_; }
  Version version() const { return version_; }
  Step LastStep(SlotId slot) const;
  // The block has this push in it, whatever came of it.
  bool Has(const Name& name) const;
  const std::map<SlotId, LedgerEntry>& ledger() const { return ledger_; }

  // Whether a gradient of the slot waits for the next update. WHOLE_BATCH only.
  bool Collects(SlotId slot) const { return batch_.Holds(slot); }
  bool Collects(const Name& name) const {
    const auto found = batch_.parts().find(name.slot);
    return found != batch_.parts().end() && found->second.incarnation == name.incarnation &&
           found->second.step == name.step;
  }
  bool collects_nothing() const { return batch_.empty(); }
  // Updates since the server started. WHOLE_BATCH only.
  struct Updates {
    uint64_t made = 0;
    uint64_t early = 0;
  };
  const Updates& updates() const { return updates_; }

  void Initialize() { initialized_ = true; }

  // The server has taken this frame. `restored`: its present life began from a file.
  void Push(const PushHeader& header, bool restored);

  // The block is like this now, after everything that was told before.
  void Observe(const State& state, const FindMissing& find_missing, const BatchModel::Slots& slots);

  // Who made a push has been told this verdict on it.
  void Acknowledge(const Name& name, const BlockVerdict& verdict);

  // The server has come back and has this: it must be one moment of the history (in SYNC rounds may
  // have been passed over since, to bring the blocks together). What came later has not happened;
  // returns its acknowledged pushes.
  std::vector<Name> Restore(const State& state);

 private:
  // A change of one slot's ledger entry, of version and elements, or of both.
  struct Event {
    std::optional<SlotId> slot;
    LedgerEntry entry;
    Version version = 0;
    SgdModel::State element;
    bool whole = true;  // false between the contributors of one round
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
  // Judges the update made since the last call, or that none was made.
  void ObserveBatch(const State& state, const BatchModel::Slots& slots);
  void MakeUpdate(const std::set<SlotId>& live);
  // `missing`: as FindMissing has it.
  void EndRound(const std::map<SlotId, Step>& missing);
  // For how long a round that lacks these waits for them once it has its quorum.
  absl::Duration Grace(const std::map<SlotId, Step>& missing) const;
  void Note(std::optional<SlotId> slot, const LedgerEntry& entry);

  World* const world_;
  const Scenario* const scenario_;
  const BlockId id_;
  const SgdModel sgd_;
  bool initialized_ = false;
  Version version_ = 0;
  SgdModel::State element_;  // each of them
  // Includes what waits for its round.
  std::map<SlotId, LedgerEntry> ledger_;
  std::map<SlotId, Contribution> round_;
  // When the round before ended; none: in an earlier life of the server, or there was none.
  std::optional<absl::Duration> began_;
  // Since when no more are missing from the round than may be.
  std::optional<absl::Duration> quorum_since_;
  BatchModel batch_;
  // A push was collected since the last Observe().
  bool is_fed_ = false;
  Updates updates_;
  // Samples that pushes have added to batches, and samples of all updates.
  int64_t accepted_samples_ = 0;
  int64_t updated_samples_ = 0;
  std::vector<Event> history_;
};

}  // namespace torchps::simulation
