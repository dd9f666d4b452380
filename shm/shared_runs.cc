#include "shm/shared_runs.h"

namespace torchps {

SharedRuns::SharedRuns(const BlockMap* map, int server)
    : map_(*map), owned_(map->owned_by(server)), taken_(owned_.size()), left_(owned_.size()) {}

std::optional<SharedRuns::Run> SharedRuns::Next(const std::vector<bool>& is_ready,
                                                const std::vector<Version>& versions,
                                                const std::vector<bool>& alone) {
  const auto is_alone = [&](size_t index) { return !alone.empty() && alone[owned_[index]]; };
  const auto is_free = [&](size_t index) { return is_ready[owned_[index]] && !taken_[index]; };
  size_t first = next_;
  for (size_t looked_at = 0; looked_at < owned_.size(); ++looked_at, ++first) {
    if (first >= owned_.size()) first = 0;
    if (is_free(first)) break;
  }
  if (left_ == 0 || first >= owned_.size() || !is_free(first)) return std::nullopt;
  const Version version = versions[owned_[first]];
  int64_t bytes = 0;
  size_t end = first;
  while (end < owned_.size() && is_free(end) && versions[owned_[end]] == version) {
    bytes += map_.blocks()[owned_[end]].length * static_cast<int64_t>(sizeof(float));
    if (end > first && (bytes > kMaxRunBytes || is_alone(end) || is_alone(first))) break;
    taken_[end] = true;
    ++end;
  }
  left_ -= end - first;
  next_ = end;
  return Run{first, end};
}

}  // namespace torchps
