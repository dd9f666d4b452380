#include "tests/simulation/sim_storage.h"

#include <utility>

#include "tests/simulation/planted_faults.h"
#include "torchps/common/hash.h"

namespace torchps::simulation {
namespace {

JobDirectory::Options DirectoryOptions(World* world, SimDisk* disk,
                                       std::shared_ptr<BackupPeer> peer) {
  JobDirectory::Options options;
  options.files = &disk->files();
  options.clock = world->clock();
  options.path = SimDisk::directory();
  options.has_threads = false;
  options.peer = std::move(peer);
  // Derives the salt from the time instead of World::Draw(), so that salts do not change the random
  // numbers of a seed.
  options.draw_salt = [world] {
    auto state = static_cast<uint64_t>(absl::ToInt64Nanoseconds(world->now()));
    return SplitMix64(state);
  };
  options.log = [world](const std::string& line) { world->Trace("  logs: ", line); };
  return options;
}

}  // namespace

SimStorage::SimStorage(World* world, SimDisk* disk, std::shared_ptr<BackupPeer> peer, Fault fault)
    : disk_(disk),
      clock_(world->clock()),
      fault_(fault),
      directory_(DirectoryOptions(world, disk, std::move(peer))) {}

absl::StatusOr<std::optional<JobStorage::Origin>> SimStorage::Open(const JobShare& share,
                                                                   ParameterStore* store) {
  absl::StatusOr<std::optional<Origin>> origin = directory_.Open(share, store);
  if (origin.ok()) origin_ = *origin;
  if (!origin.ok() || !origin->has_value() || fault_ != Fault::kForgetLedgerOnRestore) {
    return origin;
  }
  ForgetLedgers(clock_, store);
  return origin;
}

absl::StatusOr<ShardInfo> SimStorage::WriteShard(uint64_t checkpoint,
                                                 std::function<void()> before_others) {
  const SimDisk::LongWork work(disk_, std::move(before_others));
  return directory_.WriteShard(checkpoint);
}

}  // namespace torchps::simulation
