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

// A process that can die and be frozen: what it means to do later happens only in the life in which
// it meant to, and not while it is frozen. What came while it was frozen happens in the order in
// which it came, however often it is frozen again meanwhile, and before what comes later: a
// connection never hands a call's frames over out of their order.
//
// Outlives every event of its world.
class Process {
 public:
  Process(World* world, std::string name) : world_(world), name_(std::move(name)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  // Counts starts; what was begun in another life is over.
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

  // Runs `action` after `delay` in this life, as soon as the process is not frozen.
  void After(absl::Duration delay, std::function<void()> action) {
    world_->After(delay, [this, life = life_, action = std::move(action)]() mutable {
      Run(life, std::move(action));
    });
  }

  // Runs `action` now, or when the process goes on, if it is still in `life` then.
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
  // One event for each action that waits, which runs whatever is the first by then.
  void RunOneWhenThawed() {
    world_->After(frozen_until_ - world_->now(), [this, life = life_] {
      if (!alive_ || life != life_) return;
      if (world_->now() < frozen_until_) {  // once more
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
  std::deque<std::function<void()>> waiting_;  // in the order in which it came
};

}  // namespace torchps::simulation
