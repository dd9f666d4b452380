#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace torchps {

// Named tensor, stored as a contiguous run of the flat vector.
struct Segment {
  std::string name;
  std::vector<int64_t> shape;
  // Index of the optimizer's parameter group, or -1 for the defaults.
  int group = -1;
  // The parameter servers average this tensor over the workers instead of training it (batch-norm
  // statistics).
  bool averaged = false;
  // A model stage begins at this segment, so blocks may not span this boundary
  // (torchps/common/block_map.h).
  bool starts_block = false;

  // Set by ModelLayout: the first element in the flat vector, and the number of elements.
  int64_t offset = 0;
  int64_t length = 0;
};

// The ordered list of segments that defines how a model maps to one flat float32 vector. Workers
// and servers must use the same layout.
//
// Trained segments precede averaged segments. Offsets follow from the order without gaps. Immutable
// and therefore thread-safe; copyable.
class ModelLayout {
 public:
  ModelLayout() = default;

  // Creates a layout from the name, shape, group, averaged and starts_block fields of `segments`,
  // keeping their order among trained and among averaged segments. Returns INVALID_ARGUMENT, naming
  // the segment, for an empty or repeated name, a negative dimension, more than 2^40 elements in
  // total, or a model without trained elements.
  static absl::StatusOr<ModelLayout> Create(std::vector<Segment> segments);

  const std::vector<Segment>& segments() const { return segments_; }

  // The trained elements are [0, trained_size()) in the flat vector.
  int64_t trained_size() const { return trained_size_; }
  // The averaged elements are [trained_size(), size()) in the flat vector.
  int64_t averaged_size() const { return size_ - trained_size_; }
  int64_t size() const { return size_; }

  // 64-bit FNV-1a hash over names, shapes, groups, order and stage starts. Two layouts are equal if
  // and only if their fingerprints match. The hash is identical on all machines.
  uint64_t fingerprint() const { return fingerprint_; }

  // Returns OK if the layouts are equal. Otherwise returns FAILED_PRECONDITION, naming the first
  // segment that differs and describing it in both layouts. `mine` and `theirs` name this layout
  // and `other` in the message, for example "the running job" and "this worker".
  absl::Status CheckSame(const ModelLayout& other, const std::string& mine,
                         const std::string& theirs) const;

 private:
  std::vector<Segment> segments_;
  int64_t trained_size_ = 0;
  int64_t size_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace torchps
