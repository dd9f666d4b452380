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

// The disk of a server's machine as the server sees it; it outlives its processes. Now and then an
// operation fails, or is the last one that a process does; in the middle of long ones the world
// goes on. Several servers may share a disk, and a directory on it, if none of them loses power.
//
// Not thread-safe.
class SimDisk {
 public:
  // `on_fatal` ends the process that uses the disk, if it may; what it tries after that fails.
  SimDisk(World* world, const Scenario* scenario, std::shared_ptr<FaultyFileSystem> disk,
          std::function<bool()> on_fatal);

  FileSystem& files() { return files_; }
  static std::string directory() { return "kept"; }

  // Long work, during which other things happen, each time after a call of `before_others`; shorter
  // one is one moment. One at a time.
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

  // Nothing can be written for a while: it is full.
  void Fill(absl::Duration duration) { full_until_ = world_->now() + duration; }

  // From here on nothing has an effect, until the process is gone.
  void Cut() { is_cut_ = true; }
  // The process is gone, in a power cut or by itself, with all that it had open; the disk may be
  // used again.
  void Recover(bool power_cut);

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
  std::function<void()> before_others_;  // null where no long work is being done
};

}  // namespace torchps::simulation
