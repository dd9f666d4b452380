#include "tests/simulation/world.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace torchps::simulation {

World::World(uint64_t seed, bool is_traced) : is_traced_(is_traced), random_(seed) {
  // Makes the random numbers of neighboring seeds unrelated.
  random_ = SplitMix64(random_);
}

void World::After(absl::Duration delay, std::function<void()> event) {
  events_.emplace(std::make_pair(now() + std::max(delay, absl::ZeroDuration()), ++last_event_),
                  std::move(event));
}

bool World::Step() {
  if (events_.empty()) return false;
  const auto first = events_.begin();
  clock_.now = first->first.first;
  Digest(first->first.second);
  Digest(static_cast<uint64_t>(absl::ToInt64Nanoseconds(clock_.now)));
  const std::function<void()> event = std::move(first->second);
  events_.erase(first);
  ++events_run_;
  event();
  return true;
}

void World::GoOnMeanwhile() {
  constexpr int kDeepest = 3;
  if (depth_ == kDeepest) return;
  ++depth_;
  for (uint64_t count = Below(5); count > 0 && violation_.empty(); --count) Step();
  --depth_;
}

absl::Duration World::NextAfter(absl::Duration mean) {
  return -mean * std::log(1.0 - UnitDouble(Draw()));
}

void World::Print(const std::string& line) const {
  std::printf("%10.6f  %s\n", absl::ToDoubleSeconds(elapsed()), line.c_str());
}

}  // namespace torchps::simulation
