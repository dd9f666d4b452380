#include "tests/simulation/sim_storage.h"

#include <vector>

#include "common/check.h"

namespace torchps::simulation {
namespace {

JobDirectory::Options DirectoryOptions(World* world, SimDisk* disk) {
  JobDirectory::Options options;
  options.files = &disk->files();
  options.clock = world->clock();
  options.path = SimDisk::directory();
  options.has_log_thread = false;
  options.say = [world](const std::string& line) { world->Trace("  says: ", line); };
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
  if (!origin.ok() || !origin->has_value() || fault_ != Fault::kForgetLedgerOnRestore) {
    return origin;
  }
  for (size_t index = 0; index < store->owned(); ++index) {
    const auto copy = store->MakeCopy();
    if (!store->Capture(index, *clock_, copy.get()).ok()) continue;
    BlockImage image = copy->image();
    image.ledger = {};
    TPS_CHECK(store->Restore(image).ok(), "a copy of a block can be restored");
  }
  return origin;
}

absl::StatusOr<ShardInfo> SimStorage::WriteShard(uint64_t checkpoint) {
  const SimDisk::LongWork work(disk_);
  return directory_.WriteShard(checkpoint);
}

void ForgetStep(const Clock* clock, ParameterStore* store, BlockId block, SlotId slot, Step step) {
  for (size_t index = 0; index < store->owned(); ++index) {
    if (store->block_id(index) != block) continue;
    const auto copy = store->MakeCopy();
    if (!store->Capture(index, *clock, copy.get()).ok()) return;
    BlockImage image = copy->image();
    std::vector<LedgerEntry> ledger(image.ledger.begin(), image.ledger.end());
    if (static_cast<size_t>(slot) >= ledger.size() || ledger[slot].last_step < step) return;
    ledger[slot].last_step = step - 1;
    image.ledger = ledger;
    TPS_CHECK(store->Restore(image).ok(), "a copy of a block can be restored");
    return;
  }
}

}  // namespace torchps::simulation
