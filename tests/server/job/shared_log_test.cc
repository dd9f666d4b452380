// Tests how a server reads gradients in a worker's shared memory, and what the push log records.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/job_harness.h"
#include "torchps/server/store/block_journal.h"
#include "torchps/server/store/job_storage.h"
#include "torchps/transport/layout_codec.h"
#include "torchps/transport/push_segments.h"
#include "torchps/transport/shared_layout.h"
#include "torchps/transport/shared_segment.h"

namespace torchps {
namespace {

// Journal that keeps the gradients. Like the push log, it reads a gradient after the update.
class Gradients final : public JobStorage, public BlockJournal {
 public:
  absl::StatusOr<std::optional<Origin>> Open(const JobShare&, ParameterStore*) override {
    return std::optional<Origin>();
  }
  BlockJournal* journal() override { return this; }
  void Describe(DurabilityStatus*) override {}

  void Record(const Block& block, const BlockRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex) override {
    if (record.kind != BlockRecord::Kind::kGradient) return;
    before_reading();
    std::vector<float>& kept = of[block.range.id];
    kept.resize(block.range.length);
    if (record.payload != nullptr) {
      record.payload->CopyTo(absl::MakeSpan(kept));
    } else {
      std::copy(record.elements.begin(), record.elements.end(), kept.begin());
    }
  }
  void WhenDurable(std::function<void()> continuation) override { continuation(); }

  std::function<void()> before_reading;
  std::map<BlockId, std::vector<float>> of;
};

TEST(SharedLogTest, ReadsTheGradientFromTheNamedBuffer) {
  Gradients gradients;
  gradients.before_reading = [] {};
  JobHarness::Options options;
  options.workers = 1;
  options.storage = &gradients;
  JobHarness harness(options);
  ASSERT_TRUE(harness.Enter(0, 1).ok());
  ASSERT_TRUE(harness.Initialize(0, 1, 0.0f).ok());
  HelloRequest hello = JobHarness::Hello(options);
  const ModelLayout model = *DecodeLayout(hello.layout());
  const auto segment = *PushSegment::Create(model, /*buffers=*/2);
  *hello.mutable_shared_memory() = EncodeOffer(segment->offer());
  HelloReply reply;
  harness.job().Share(hello, &reply);
  ASSERT_TRUE(reply.has_shared_memory());

  PushHeader header;
  header.slot = 0;
  header.incarnation = 1;
  header.weight = 1;
  header.shared_blocks = static_cast<uint32_t>(harness.blocks());
  for (const int buffer : {1, 0}) {
    const absl::Span<float> values = segment->buffer(buffer);
    std::fill(values.begin(), values.end(), 3.0f + buffer);
    ++header.step;
    header.shared_buffer = static_cast<uint32_t>(buffer);
    ASSERT_EQ(harness.job().PushFrame(header, FramePayload()), absl::OkStatus());
    for (const auto& [block, gradient] : gradients.of) {
      EXPECT_EQ(gradient[0], 3.0f + buffer) << "block " << block;
    }
  }
  ++header.step;
  for (const uint32_t missing : {2u, 0xffffffffu}) {
    header.shared_buffer = missing;
    const absl::Status refused = harness.job().PushFrame(header, FramePayload());
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("does not have"));
  }
}

TEST(SharedLogTest, RecordsTheAppliedGradientDespiteLaterWrites) {
  for (const char* mode : {"ASYNC", "SYNC"}) {
    SCOPED_TRACE(mode);
    Gradients gradients;
    JobHarness::Options options;
    options.workers = 1;
    options.storage = &gradients;
    options.job = std::string("consistency { mode: ") + mode + " }";
    JobHarness harness(options);
    ASSERT_TRUE(harness.Enter(0, 1).ok());
    ASSERT_TRUE(harness.Initialize(0, 1, 0.0f).ok());

    HelloRequest hello = JobHarness::Hello(options);
    const ModelLayout model = *DecodeLayout(hello.layout());
    const PushSegmentLayout layout(model);
    const auto segment = *SharedSegment::Create("test-gradients", layout.bytes());
    *hello.mutable_shared_memory() = EncodeOffer(segment->offer());
    HelloReply reply;
    harness.job().Share(hello, &reply);
    ASSERT_TRUE(reply.has_shared_memory());
    float next = 0;
    const auto write = [&] {
      auto* const begin = reinterpret_cast<float*>(segment->data() + layout.BufferAt(0));
      std::fill(begin, begin + model.trained_size(), ++next);
    };
    write();
    gradients.before_reading = write;

    PushHeader header;
    header.slot = 0;
    header.incarnation = 1;
    header.step = 1;
    header.weight = 1;
    header.shared_blocks = static_cast<uint32_t>(harness.blocks());
    ASSERT_EQ(harness.job().PushFrame(header, FramePayload()), absl::OkStatus());
    ASSERT_EQ(gradients.of.size(), 2u);
    for (const auto& [block, gradient] : gradients.of) {
      EXPECT_EQ(gradient[0], -harness.Value(block)) << "block " << block;
    }
  }
}

}  // namespace
}  // namespace torchps
