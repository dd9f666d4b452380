#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/simulation/process_files.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/world.h"
#include "tests/testing/faulty_file_system.h"

namespace torchps::simulation {

// Simulates the disk of a server's machine, which outlives the server's processes. Sometimes an
// operation fails, or the process dies in it. During a long write, other events happen. Several
// servers may share a disk and a directory if none of them loses power.
//
// Not thread-safe.
class SimDisk {
 public:
  // `on_fatal` kills the process that uses the disk, and returns false if it must not die now.
  // Later operations of the process fail.
  SimDisk(World* world, const Scenario* scenario, std::shared_ptr<FaultyFileSystem> disk,
          std::function<bool()> on_fatal);

  FileSystem& files() { return files_; }
  static std::string directory() { return "kept"; }

  // Marks long work. Each write to a shard then calls `before_others` and lets a few other events
  // happen. Other work takes no virtual time. Only one LongWork may exist at a time.
  class LongWork {
   public:
    LongWork(SimDisk* disk, std::function<void()> before_others) : disk_(disk) {
      disk_->before_others_ = std::move(before_others);
    }
    ~LongWork() { disk_->before_others_ = nullptr; }
    LongWork(const LongWork&) = delete;
    LongWork& operator=(const LongWork&) = delete;

   private:
    SimDisk* const disk_;
  };
  bool in_long_work() const { return before_others_ != nullptr; }

  // Makes the disk full for this time.
  void Fill(absl::Duration duration) { full_until_ = world_->now() + duration; }

  // Limits the disk, now and later, to the files on it and `bytes` more.
  void Limit(int64_t bytes) { disk_->LeaveFree(bytes); }

  // Makes all operations fail until Recover().
  void Cut() { is_cut_ = true; }
  // Makes the disk usable again after the process died. With `power_cut` the machine lost power,
  // and unsynced changes may be lost.
  void Recover(bool power_cut);
  // As Recover(), with an empty disk.
  void Replace();
  // As FaultyFileSystem::MisdirectWrite().
  std::string MisdirectWrite(FaultyFileSystem::MayDamage may_damage);

 private:
  std::optional<FaultyFileSystem::Fault> OnOperation(FaultyFileSystem::Operation operation,
                                                     const std::string& path);

  World* const world_;
  const Scenario* const scenario_;
  const std::function<bool()> on_fatal_;
  const std::shared_ptr<FaultyFileSystem> disk_;
  ProcessFiles files_;
  bool is_cut_ = false;
  absl::Duration full_until_;
  std::function<void()> before_others_;  // null outside long work
};

}  // namespace torchps::simulation
