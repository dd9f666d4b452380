#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "tests/simulation/world.h"

namespace torchps::simulation {

// Simulates a process that can die and freeze. An action runs only if the process has not restarted
// since the action was scheduled, and not while the process is frozen. Actions that arrive during a
// freeze run later in the order of arrival, before newer actions, even if the process freezes
// again. So the frames of a call stay in order, as on a connection.
//
// Outlives all events of the World.
class Process {
 public:
  Process(World* world, std::string name) : world_(world), name_(std::move(name)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  // Counts starts. Actions from before the current start are dropped.
  uint64_t life() const { return life_; }

  void Start() {
    alive_ = true;
    ++life_;
    frozen_until_ = absl::ZeroDuration();
    waiting_.clear();
  }
  void Die() { alive_ = false; }
  bool frozen() const { return alive_ && world_->now() < frozen_until_; }
  absl::Duration frozen_until() const { return frozen_until_; }
  void Freeze(absl::Duration duration) {
    frozen_until_ = std::max(frozen_until_, world_->now() + duration);
  }

  // Runs `action` after `delay`, once the process is not frozen. Drops it after a restart.
  void After(absl::Duration delay, std::function<void()> action) {
    world_->After(delay, [this, life = life_, action = std::move(action)]() mutable {
      Run(life, std::move(action));
    });
  }

  // Runs `action` now, or when the process thaws. Drops it if the process has died or restarted
  // since start number `life`.
  void Run(uint64_t life, std::function<void()> action) {
    if (!alive_ || life != life_) return;
    if (world_->now() >= frozen_until_ && waiting_.empty()) {
      action();
      return;
    }
    waiting_.push_back(std::move(action));
    RunOneWhenThawed();
  }

 private:
  // Schedules an event that runs the first waiting action. Called once for each waiting action.
  void RunOneWhenThawed() {
    world_->After(frozen_until_ - world_->now(), [this, life = life_] {
      if (!alive_ || life != life_) return;
      if (world_->now() < frozen_until_) {  // frozen again
        RunOneWhenThawed();
        return;
      }
      const std::function<void()> action = std::move(waiting_.front());
      waiting_.pop_front();
      action();
    });
  }

  World* const world_;
  const std::string name_;
  bool alive_ = false;
  uint64_t life_ = 0;
  absl::Duration frozen_until_;
  std::deque<std::function<void()>> waiting_;  // in the order of arrival
};

}  // namespace torchps::simulation
