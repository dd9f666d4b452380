#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/block_map.h"
#include "common/element_runs.h"
#include "common/types.h"
#include "proto/job.pb.h"
#include "worker/device/final_shares.h"
#include "worker/kernels/kernel_shapes.h"

namespace torchps {

// Layout of the records of the trained blocks in a vector of floats. The device fills the records
// and the host copies them. Each record is the GradientVerdict followed by the encoded bytes.
// Records are stored in the order of the blocks, so one copy transfers neighbours.
//
// Immutable, so thread-safe.
class EncodedRecords {
 public:
  // REQUIRES: `encoding` is normalized.
  EncodedRecords(const BlockMap& map, const EncodingSpec& encoding);

  EncodingSpec::Kind encoding() const { return encoding_; }
  double fraction() const { return fraction_; }
  // Returns the size of all records, in floats.
  int64_t size() const { return begins_.back(); }
  // Returns the records of a run of trained blocks, in floats.
  ElementRun Of(BlockRun blocks) const { return {begins_[blocks.begin], begins_[blocks.end]}; }

  // The verdict and the bytes of one record. `record` must be aligned for doubles.
  template <typename Float>
  static auto* GetVerdict(Float* record) {
    return reinterpret_cast<Like<Float, GradientVerdict>*>(record);
  }
  template <typename Float>
  static auto* GetBytes(Float* record) {
    return reinterpret_cast<Like<Float, uint8_t>*>(record + kVerdictFloats);
  }

  int64_t begin(BlockId block) const { return begins_[block]; }
  size_t bytes(BlockId block) const { return bytes_[block]; }

 private:
  // Const if Float is const.
  template <typename Float, typename Type>
  using Like = std::conditional_t<std::is_const_v<Float>, const Type, Type>;

  static constexpr int64_t kVerdictFloats = sizeof(GradientVerdict) / sizeof(float);

  const EncodingSpec::Kind encoding_;
  const double fraction_;
  // By trained block, followed by the end.
  std::vector<int64_t> begins_ = {0};
  std::vector<size_t> bytes_;
};

// Encodes gradient blocks on the device, with error feedback. The result equals, bit for bit, the
// result of ErrorFeedback (client/error_feedback.h) on the host. The residual stays on the device.
//
// Each call queues device work on the calling thread's current stream and returns without waiting.
// Calls must not overlap. Any call may throw c10::Error.
class BlockEncoder {
 public:
  virtual ~BlockEncoder() = default;

  virtual const EncodedRecords& records() const = 0;
  // Returns the memory of all records, on the device.
  virtual absl::Span<const float> memory() const = 0;

  // Adds the block's gradient to the residual and writes the encoded sum into the block's record.
  // If `looks` is true, the encoder first checks the gradient: a gradient that is not finite
  // changes neither the residual nor the bytes, and the record's verdict reports it. If `looks` is
  // false, the caller knows that the gradient is finite, and the verdict is undefined. Elements in
  // `absent`, counted from the start of the block, are sent as zero and keep the residual.
  virtual absl::Status Encode(BlockId block, bool looks, absl::Span<const ElementRun> absent) = 0;
  // Adds the block's record back to the residual. REQUIRES: Encode() filled the record.
  virtual absl::Status TakeBack(BlockId block) = 0;
};

}  // namespace torchps
