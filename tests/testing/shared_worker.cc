#include "tests/testing/shared_worker.h"

#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "torchps/common/check.h"
#include "torchps/transport/layout_codec.h"
#include "torchps/transport/shared_layout.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

std::unique_ptr<SharedSegment> MakeSegment(const PushSegmentLayout& layout) {
  auto segment = SharedSegment::Create("test-gradients", layout.bytes());
  TPS_CHECK(segment.ok(), "the test needs shared memory");
  return *std::move(segment);
}

HelloRequest WithOffer(HelloRequest hello, const SharedSegment& segment) {
  if (!hello.has_shared_memory()) *hello.mutable_shared_memory() = EncodeOffer(segment.offer());
  return hello;
}

}  // namespace

SharedWorker::SharedWorker(std::shared_ptr<grpc::Channel> channel, HelloRequest hello)
    : SharedWorker(std::move(channel), hello, *DecodeLayout(hello.layout())) {}

SharedWorker::SharedWorker(std::shared_ptr<grpc::Channel> channel, HelloRequest hello,
                           ModelLayout layout)
    : layout_(layout),
      segment_(MakeSegment(layout_)),
      plain_(std::move(channel), WithOffer(std::move(hello), *segment_)),
      pulled_(plain_.blocks().size()),
      versions_(plain_.blocks().size(), -1) {
  for (const BlockRange& block : plain_.blocks()) pulled_[block.id].resize(block.length);
}

absl::Status SharedWorker::Hello() {
  if (absl::Status status = plain_.Hello(); !status.ok()) return status;
  values_ = nullptr;
  if (!plain_.hello_reply().has_shared_memory()) return absl::OkStatus();
  auto values = SharedValues::Open(DecodeOffer(plain_.hello_reply().shared_memory()), plain_.map(),
                                   /*server=*/0);
  if (!values.ok()) return values.status();
  values_ = *std::move(values);
  return absl::OkStatus();
}

absl::Span<float> SharedWorker::Gradient(BlockId block) {
  const BlockRange& range = plain_.blocks()[block];
  return absl::MakeSpan(reinterpret_cast<float*>(segment_->data() + layout_.GetOffset(range)),
                        range.length);
}

PushFrame SharedWorker::Frame(Step step, BlockId block, uint32_t blocks) const {
  PushFrame frame = plain_.Frame(step, block, /*gradient=*/0);
  frame.clear_payload();
  frame.set_shared_blocks(blocks);
  frame.set_base_version(versions_[block] < 0 ? 0 : versions_[block]);
  return frame;
}

absl::StatusOr<PushReply> SharedWorker::Push(Step step, uint32_t blocks_in_frame) {
  std::vector<PushFrame> frames;
  const auto blocks = static_cast<BlockId>(plain_.blocks().size());
  for (BlockId begin = 0; begin < blocks;) {
    // All blocks of a frame must have the same base version.
    BlockId end = begin + 1;
    while (end < blocks && end - begin < blocks_in_frame && versions_[end] == versions_[begin]) {
      ++end;
    }
    frames.push_back(Frame(step, begin, end - begin));
    begin = end;
  }
  return plain_.Send(frames);
}

absl::Status SharedWorker::Pull(Step clock) {
  PullRequest request = plain_.RequestPull(clock);
  request.set_shared_memory(true);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
  const auto reader = plain_.stub().Pull(&context, request);
  PullFrame frame;
  const bool came = reader->Read(&frame);
  if (came)
    TPS_CHECK(frame.shared() && frame.payload().empty(), "the frame is not a shared-memory grant");
  TPS_CHECK(!reader->Read(&frame), "the pull returned more than one frame");
  if (absl::Status status = FromGrpcStatus(reader->Finish()); !status.ok()) return status;
  TPS_CHECK(came, "the pull succeeded without a frame");
  for (size_t i = 0; i < pulled_.size(); ++i) {
    std::optional<Version> version;
    while (!(version = values_->Read(i, versions_[i], pulled_[i].data())).has_value()) {
      std::this_thread::yield();
    }
    versions_[i] = *version;
  }
  return absl::OkStatus();
}

}  // namespace torchps
