#include "tests/fault/integer_rig.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/plain_worker.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/check.h"
#include "torchps/common/hash.h"
#include "torchps/job/job_spec.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {
namespace {

constexpr int64_t kBlockBytes = 2048;

JobSpec Job(ConsistencySpec::Mode mode, int staleness_bound, int lease_seconds) {
  JobSpec job;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("name: 'integers' workers: ", IntegerRig::kSlots, " model { name: 'integers' } ",
                   "training { balance: EQUAL global_batch: false } ",
                   "optimizer { sgd {} learning_rate: 1 } wire { block_bytes: ", kBlockBytes,
                   " } membership { lease_seconds: ", lease_seconds, " }"),
      &job);
  TPS_CHECK(parsed, "the job of integers is not valid");
  job.mutable_consistency()->set_mode(mode);
  if (mode == ConsistencySpec::ASYNC) {
    job.mutable_consistency()->set_staleness_bound(staleness_bound);
  }
  const auto normal = NormalizeJobSpec(job);
  TPS_CHECK(normal.ok(), "the job of integers is not valid");
  return *normal;
}

ModelLayout Layout() {
  ModelLayoutProto layout;
  SegmentProto* const weights = layout.add_segment();
  weights->set_name("w");
  weights->add_shape(IntegerRig::kTrained);
  weights->set_group(-1);
  SegmentProto* const mean = layout.add_segment();
  mean->set_name("running_mean");
  mean->add_shape(IntegerRig::kAveraged);
  mean->set_group(-1);
  mean->set_averaged(true);
  return *DecodeLayout(layout);
}

}  // namespace

IntegerRig::IntegerRig(ConsistencySpec::Mode mode, int staleness_bound, int lease_seconds) {
  options_.job = Job(mode, staleness_bound, lease_seconds);
  options_.layout = Layout();
  options_.block_map = *BlockMap::Create(options_.layout, kBlockBytes, kServers);
  options_.job_id = 7;
  options_.incarnation = 1;
  options_.clock = &clock_;
  options_.stop = &stop_;
}

ParameterClient::Options IntegerRig::ClientOptions(
    SlotId slot, const std::vector<std::string>& addresses) const {
  ParameterClient::Options options = options_;
  options.slot = slot;
  for (const std::string& address : addresses) {
    options.servers.push_back(ConnectToServer(static_cast<int>(options.servers.size()), address));
  }
  return options;
}

std::unique_ptr<Heartbeat> IntegerRig::KeepAlive(ParameterClient& client) {
  return std::make_unique<Heartbeat>(
      absl::Milliseconds(200),
      [&client](absl::Duration timeout) {
        client.leases().Renew(timeout, /*stalled_for=*/absl::ZeroDuration(),
                              /*longest_pause=*/absl::InfiniteDuration());
        return absl::OkStatus();
      },
      [](const absl::Status&) {});
}

std::vector<int> IntegerRig::Gradient(SlotId slot, Step step) {
  uint64_t random = static_cast<uint64_t>(step) * kSlots + static_cast<uint64_t>(slot);
  std::vector<int> gradient(kTrained);
  for (int& element : gradient) element = static_cast<int>(UniformBelow(random, 7)) - 3;
  return gradient;
}

ServerStatus IntegerRig::GetStatus(const std::string& address) {
  const auto stub = ParameterService::NewStub(PlainChannel(address));
  grpc::ClientContext context;
  ServerStatusRequest request;
  request.set_include_ledger(true);
  ServerStatus status;
  const grpc::Status outcome = stub->GetServerStatus(&context, request, &status);
  EXPECT_TRUE(outcome.ok()) << outcome.error_message();
  return status;
}

}  // namespace torchps
