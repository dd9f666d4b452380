#include "torchps/client/stage_layouts.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace torchps {

std::string FullName(int stage, const std::string& name) { return absl::StrCat(stage, ".", name); }

absl::StatusOr<ModelLayout> JoinLayouts(const std::vector<ModelLayout>& stages) {
  std::vector<Segment> segments;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    bool begins_trained = true;
    bool begins_averaged = true;
    for (Segment segment : stages[stage].segments()) {
      segment.starts_block =
          stage > 0 && std::exchange(segment.averaged ? begins_averaged : begins_trained, false);
      segments.push_back(std::move(segment));
    }
  }
  return ModelLayout::Create(std::move(segments));
}

absl::StatusOr<BlockMap> BlocksOfStage(const BlockMap& whole,
                                       const std::vector<ModelLayout>& stages, int stage) {
  int64_t trained = 0;
  int64_t averaged = 0;
  for (size_t other = 0; other < stages.size(); ++other) {
    const bool is_before = static_cast<int>(other) < stage;
    if (is_before) trained += stages[other].trained_size();
    // Averaged elements follow the trained elements of all stages.
    averaged += stages[other].trained_size() + (is_before ? stages[other].averaged_size() : 0);
  }
  const ModelLayout& own = stages[static_cast<size_t>(stage)];
  return whole.Part(trained, own.trained_size(), averaged, own.averaged_size());
}

}  // namespace torchps
