#include "tests/simulation/sim_disk.h"

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace torchps::simulation {
namespace {

using Operation = FaultyFileSystem::Operation;

// Part of a shard's file name. Writing a shard is long work (SimDisk::LongWork).
constexpr absl::string_view kLong = ".safetensors";
// Part of the path of another server's shard, whose pieces are written at once.
constexpr absl::string_view kCopy = "copies-of-";

bool Changes(Operation operation) {
  switch (operation) {
    case Operation::kCreate:
    case Operation::kOpenForAppend:
    case Operation::kWrite:
    case Operation::kTruncate:
    case Operation::kSync:
    case Operation::kRename:
    case Operation::kRemove:
    case Operation::kSyncDirectory:
      return true;
    default:
      return false;
  }
}

}  // namespace

SimDisk::SimDisk(World* world, const Scenario* scenario, std::shared_ptr<FaultyFileSystem> disk,
                 std::function<bool()> on_fatal)
    : world_(world),
      scenario_(scenario),
      on_fatal_(std::move(on_fatal)),
      disk_(std::move(disk)),
      files_(disk_.get(), [this](Operation operation, const std::string& path) {
        return OnOperation(operation, path);
      }) {}

void SimDisk::Recover(bool power_cut) {
  is_cut_ = false;
  if (power_cut) disk_->Crash(world_->Draw());
}

void SimDisk::Replace() {
  is_cut_ = false;
  disk_->LoseDisk();
}

std::string SimDisk::MisdirectWrite(FaultyFileSystem::MayDamage may_damage) {
  return disk_->MisdirectWrite(world_->Draw(), may_damage);
}

std::optional<FaultyFileSystem::Fault> SimDisk::OnOperation(Operation operation,
                                                            const std::string& path) {
  if (!is_cut_ && in_long_work() && operation == Operation::kWrite &&
      absl::StrContains(path, kLong) && !absl::StrContains(path, kCopy)) {
    before_others_();
    world_->GoOnMeanwhile();
  }
  FaultyFileSystem::Fault fault;
  fault.error_number = EIO;
  if (is_cut_) return fault;
  if (!Changes(operation) || world_->elapsed() >= scenario_->heals_at) return std::nullopt;
  if (world_->Chance(scenario_->deaths_in_writing) && on_fatal_()) {
    is_cut_ = true;
    fault.bytes_before = world_->Below(64);
    return fault;
  }
  if (operation == Operation::kWrite && world_->now() < full_until_) {
    fault.error_number = ENOSPC;
    return fault;
  }
  if (!world_->Chance(scenario_->disk_errors)) return std::nullopt;
  fault.error_number = world_->Chance(0.5) ? ENOSPC : EIO;
  if (operation == Operation::kWrite) fault.bytes_before = world_->Below(64);
  return fault;
}

}  // namespace torchps::simulation
