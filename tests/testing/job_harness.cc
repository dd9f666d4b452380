#include "tests/testing/job_harness.h"

#include <cstring>
#include <utility>

#include "google/protobuf/text_format.h"
#include "tests/testing/async_job.h"
#include "torchps/common/check.h"
#include "torchps/job/job_spec.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {

FramePayload MakePayload(const std::vector<float>& elements) {
  std::vector<grpc::Slice> slices;
  slices.emplace_back(elements.data(), elements.size() * sizeof(float));
  return FramePayload(std::move(slices));
}

HelloRequest JobHarness::Hello(const Options& options) {
  JobSpec spec;
  spec.set_workers(options.workers);
  spec.mutable_model()->set_name("test");
  spec.mutable_optimizer()->mutable_sgd();
  spec.mutable_optimizer()->set_learning_rate(1.0);
  spec.mutable_wire()->set_block_bytes(options.block_elements * 4);
  JobSpec more;
  TPS_CHECK(google::protobuf::TextFormat::ParseFromString(options.job, &more), "bad test job");
  spec.MergeFrom(more);
  const absl::StatusOr<JobSpec> normal = NormalizeJobSpec(AsyncUnlessSaid(spec));
  TPS_CHECK(normal.ok(), "the test's job is not valid");

  HelloRequest request;
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_job() = *normal;
  SegmentProto* const w = request.mutable_layout()->add_segment();
  w->set_name("w");
  w->add_shape(options.trained);
  w->set_group(-1);
  if (options.averaged > 0) {
    SegmentProto* const mean = request.mutable_layout()->add_segment();
    mean->set_name("running_mean");
    mean->add_shape(options.averaged);
    mean->set_group(-1);
    mean->set_averaged(true);
  }
  request.set_slot(0);
  request.set_incarnation(1);
  request.set_server_index(0);
  request.set_server_count(1);
  request.set_job_id(7);
  return request;
}

JobHarness::JobHarness(const Options& options) {
  const HelloRequest hello = Hello(options);
  auto job = HostedJob::Create(hello, &clock_, options.storage);
  TPS_CHECK(job.ok(), "the test's job is refused");
  job_ = *std::move(job);
  const auto layout = DecodeLayout(hello.layout());
  TPS_CHECK(layout.ok(), "the test's layout is not valid");
  const auto map = BlockMap::Create(*layout, hello.job().wire().block_bytes(), 1);
  TPS_CHECK(map.ok(), "the test's layout cannot be cut into blocks");
  map_ = *map;
}

absl::StatusOr<HelloReply> JobHarness::Enter(SlotId slot, Incarnation incarnation) {
  HelloReply reply;
  const absl::Status entered = job_->Enter(slot, incarnation, &reply);
  if (!entered.ok()) return entered;
  return reply;
}

absl::Status JobHarness::Initialize(SlotId slot, Incarnation incarnation, float value) {
  for (BlockId block = 0; block < blocks(); ++block) {
    const absl::Status status = Frame(slot, incarnation, /*step=*/0, block, value, /*base=*/0);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status JobHarness::Frame(SlotId slot, Incarnation incarnation, Step step, BlockId block,
                               float value, Version base, uint32_t weight) {
  PushHeader header;
  header.slot = slot;
  header.incarnation = incarnation;
  header.step = step;
  header.block = block;
  header.base_version = base;
  header.weight = weight;
  return job_->PushFrame(header,
                         MakePayload(std::vector<float>(map_.blocks()[block].length, value)));
}

absl::Status JobHarness::Withhold(SlotId slot, Incarnation incarnation, Step step, BlockId block,
                                  Version base, uint32_t weight) {
  PushHeader header;
  header.slot = slot;
  header.incarnation = incarnation;
  header.step = step;
  header.block = block;
  header.base_version = base;
  header.weight = weight;
  header.withheld = true;
  return job_->PushFrame(header, FramePayload());
}

std::shared_ptr<absl::StatusOr<PushReply>> JobHarness::Push(SlotId slot, Incarnation incarnation,
                                                            Step step, float value, Version base,
                                                            uint32_t weight) {
  auto result = std::make_shared<absl::StatusOr<PushReply>>(absl::UnknownError("not answered"));
  for (BlockId block = 0; block < blocks(); ++block) {
    const absl::Status status =
        Frame(slot, incarnation, step, block, value, base < 0 ? GetVersion(block) : base, weight);
    if (!status.ok()) {
      *result = status;
      return result;
    }
  }
  job_->FinishPush(slot, incarnation, step,
                   [result](const absl::StatusOr<PushReply>& reply) { *result = reply; });
  return result;
}

std::shared_ptr<JobHarness::Pulling> JobHarness::Pull(SlotId slot, Incarnation incarnation,
                                                      Step clock, bool ahead) {
  auto pulling = std::make_shared<Pulling>();
  const absl::StatusOr<HostedJob::ParkedId> parked =
      job_->Pull(slot, incarnation, clock, ahead, [pulling](const HostedJob::PullGrant& grant) {
        pulling->granted = true;
        pulling->grant = grant;
      });
  if (parked.ok()) {
    pulling->parked = *parked;
  } else {
    pulling->refused = parked.status();
  }
  return pulling;
}

float JobHarness::Value(BlockId block) {
  const absl::StatusOr<ParameterStore::Image> image = job_->store().Read(block);
  TPS_CHECK(image.ok(), "the block has no values");
  float value;
  std::memcpy(&value, image->values.begin(), sizeof(value));
  return value;
}

Version JobHarness::GetVersion(BlockId block) {
  const absl::StatusOr<ParameterStore::Image> image = job_->store().Read(block);
  return image.ok() ? image->version : 0;
}

ServerStatus JobHarness::Status(bool include_ledger) {
  ServerStatus status;
  job_->Describe(include_ledger, &status);
  return status;
}

}  // namespace torchps
