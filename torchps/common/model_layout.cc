#include "torchps/common/model_layout.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

// 4 TiB of float32: larger than any model a parameter server will hold, yet small enough that byte
// counts cannot overflow.
constexpr int64_t kMaxElements = int64_t{1} << 40;

std::string Describe(const Segment& segment) {
  return absl::StrCat("'", segment.name, "' [", absl::StrJoin(segment.shape, ", "), "]",
                      segment.averaged ? ", averaged" : "",
                      segment.starts_block ? ", begins a stage" : "",
                      segment.group >= 0 ? absl::StrCat(", group ", segment.group) : "");
}

absl::StatusOr<int64_t> ElementCount(const Segment& segment) {
  int64_t count = 1;
  for (const int64_t dimension : segment.shape) {
    if (dimension < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment ", Describe(segment), " has a negative dimension"));
    }
    if (dimension > 0 && count > kMaxElements / dimension) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment ", Describe(segment), " has more than 2^40 elements"));
    }
    count *= dimension;
  }
  return count;
}

}  // namespace

absl::StatusOr<ModelLayout> ModelLayout::Create(std::vector<Segment> segments) {
  std::stable_partition(segments.begin(), segments.end(),
                        [](const Segment& segment) { return !segment.averaged; });
  ModelLayout layout;
  absl::flat_hash_set<std::string> names;
  Fnv1a hash;
  for (Segment& segment : segments) {
    if (segment.name.empty()) return absl::InvalidArgumentError("a segment has no name");
    if (!names.insert(segment.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment '", segment.name, "' appears twice in the layout"));
    }
    const absl::StatusOr<int64_t> count = ElementCount(segment);
    if (!count.ok()) return count.status();
    segment.offset = layout.size_;
    segment.length = *count;
    layout.size_ += *count;
    if (layout.size_ > kMaxElements) {
      return absl::InvalidArgumentError("the layout has more than 2^40 elements");
    }
    if (!segment.averaged) layout.trained_size_ = layout.size_;
    hash.AddString(segment.name);
    hash.AddInteger(segment.shape.size());
    for (const int64_t dimension : segment.shape) hash.AddInteger(dimension);
    hash.AddInteger(segment.group);
    hash.AddInteger((segment.averaged ? 1 : 0) + (segment.starts_block ? 2 : 0));
  }
  if (layout.trained_size_ == 0) {
    return absl::InvalidArgumentError("the model has no trained parameter");
  }
  layout.fingerprint_ = hash.value();
  layout.segments_ = std::move(segments);
  return layout;
}

absl::Status ModelLayout::CheckSame(const ModelLayout& other, const std::string& mine,
                                    const std::string& theirs) const {
  if (fingerprint_ == other.fingerprint_) return absl::OkStatus();
  const size_t common = std::min(segments_.size(), other.segments_.size());
  for (size_t i = 0; i < common; ++i) {
    const std::string here = Describe(segments_[i]);
    const std::string there = Describe(other.segments_[i]);
    if (here != there) {
      return absl::FailedPreconditionError(absl::StrCat("the models differ first at segment ", i,
                                                        ": ", mine, " has ", here, ", ", theirs,
                                                        " has ", there));
    }
  }
  return absl::FailedPreconditionError(absl::StrCat("the models differ in length: ", mine, " has ",
                                                    segments_.size(), " segments, ", theirs,
                                                    " has ", other.segments_.size()));
}

}  // namespace torchps
