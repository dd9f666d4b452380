#include "tests/simulation/sim_storage.h"

#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/check.h"
#include "common/split_mix64.h"

namespace torchps::simulation {
namespace {

JobDirectory::Options DirectoryOptions(World* world, SimDisk* disk) {
  JobDirectory::Options options;
  options.files = &disk->files();
  options.clock = world->clock();
  options.path = SimDisk::directory();
  options.has_log_thread = false;
  // Of the time, so that a seed stays the same history.
  options.draw_salt = [world] {
    auto state = static_cast<uint64_t>(absl::ToInt64Nanoseconds(world->now()));
    return SplitMix64(state);
  };
  options.log = [world](const std::string& line) { world->Trace("  says: ", line); };
  return options;
}

}  // namespace

SimStorage::SimStorage(World* world, SimDisk* disk, Fault fault)
    : disk_(disk),
      clock_(world->clock()),
      fault_(fault),
      directory_(DirectoryOptions(world, disk)) {}

absl::StatusOr<std::optional<JobStorage::Origin>> SimStorage::Open(const JobShare& share,
                                                                   ParameterStore* store) {
  absl::StatusOr<std::optional<Origin>> origin = directory_.Open(share, store);
  if (origin.ok()) origin_ = *origin;
  if (!origin.ok() || !origin->has_value() || fault_ != Fault::kForgetLedgerOnRestore) {
    return origin;
  }
  for (size_t index = 0; index < store->owned(); ++index) {
    const auto copy = store->snapshot().MakeCopy();
    if (!store->snapshot().Capture(index, *clock_, copy.get()).ok()) continue;
    BlockImage image = copy->image();
    image.ledger = {};
    TPS_CHECK(store->snapshot().Restore(image).ok(), "a copy of a block can be restored");
  }
  return origin;
}

absl::StatusOr<ShardInfo> SimStorage::WriteShard(uint64_t checkpoint,
                                                 std::function<void()> before_others) {
  const SimDisk::LongWork work(disk_, std::move(before_others));
  return directory_.WriteShard(checkpoint);
}

namespace {

// Lets `change` alter what a block has seen of a slot; false: it leaves it as it is.
void ChangeEntry(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot,
                 absl::FunctionRef<bool(LedgerEntry*)> change) {
  for (size_t index = 0; index < store->owned(); ++index) {
    if (store->block_id(index) != block) continue;
    const auto copy = store->snapshot().MakeCopy();
    if (!store->snapshot().Capture(index, *clock, copy.get()).ok()) return;
    BlockImage image = copy->image();
    std::vector<LedgerEntry> ledger(image.ledger.begin(), image.ledger.end());
    if (static_cast<size_t>(slot) >= ledger.size() || !change(&ledger[slot])) return;
    image.ledger = ledger;
    TPS_CHECK(store->snapshot().Restore(image).ok(), "a copy of a block can be restored");
    return;
  }
}

}  // namespace

void ForgetStep(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot, Step step) {
  ChangeEntry(clock, store, block, slot, [step](LedgerEntry* entry) {
    if (entry->last_step < step) return false;
    entry->last_step = step - 1;
    return true;
  });
}

void ForgetIncarnation(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot,
                       Incarnation incarnation) {
  ChangeEntry(clock, store, block, slot, [incarnation](LedgerEntry* entry) {
    if (entry->last_step == 0 || entry->incarnation == incarnation) return false;
    entry->incarnation = incarnation;
    return true;
  });
}

}  // namespace torchps::simulation
