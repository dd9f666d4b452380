#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace torchps {

// One named tensor as a contiguous run of the flat vector.
struct Segment {
  std::string name;
  std::vector<int64_t> shape;
  // Index of the optimizer's parameter group, -1 for the defaults.
  int group = -1;
  // Not trained but averaged over workers (batch-norm statistics).
  bool averaged = false;
  // No block spans its beginning (common/block_map.h): a stage of the model begins here.
  bool starts_block = false;

  // Set by ModelLayout: first element in the flat vector, and number of elements.
  int64_t offset = 0;
  int64_t length = 0;
};

// How a model lies in one flat vector of float32 elements: the ordered list of its segments. It is
// the only thing that a worker and a server must agree on.
//
// Trained segments come first, averaged ones behind them; offsets follow from the order without
// gaps. Immutable, so thread-safe; copyable.
class ModelLayout {
 public:
  ModelLayout() = default;

  // `segments` need name, shape, group, averaged and starts_block; order within trained and within
  // averaged is kept. INVALID_ARGUMENT names the segment: empty or repeated name, negative
  // dimension, more than 2^40 elements in all, no trained element at all.
  static absl::StatusOr<ModelLayout> Create(std::vector<Segment> segments);

  const std::vector<Segment>& segments() const { return segments_; }

  // Elements that are trained: the flat vector's [0, trained_size()).
  int64_t trained_size() const { return trained_size_; }
  // Elements that are averaged: [trained_size(), size()).
  int64_t averaged_size() const { return size_ - trained_size_; }
  int64_t size() const { return size_; }

  // Same names, shapes, groups, order, beginnings of stages <=> same fingerprint (64-bit FNV-1a
  // over all of them; the same on every machine).
  uint64_t fingerprint() const { return fingerprint_; }

  // OK, or FAILED_PRECONDITION that names the first segment in which `other` differs, what this
  // layout (`mine`, e.g. "the running job") and `other` (`theirs`, e.g. "this worker") have there.
  absl::Status CheckSame(const ModelLayout& other, const std::string& mine,
                         const std::string& theirs) const;

 private:
  std::vector<Segment> segments_;
  int64_t trained_size_ = 0;
  int64_t size_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace torchps
