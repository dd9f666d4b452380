#include "tests/testing/checkpoint_driver.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/testing/plain_worker.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/transport/layout_codec.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(20);

}  // namespace

CheckpointDriver::CheckpointDriver(Options options) : options_(std::move(options)) {
  for (const std::string& address : options_.addresses) {
    channels_.push_back(PlainChannel(address));
    stubs_.push_back(ParameterService::NewStub(channels_.back()));
  }
}

bool CheckpointDriver::AwaitConnected(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  return absl::c_all_of(channels_, [&](const auto& channel) {
    return channel->WaitForConnected(absl::ToChronoTime(deadline));
  });
}

absl::Status CheckpointDriver::Take() {
  const uint64_t number = ++last_;
  Manifest manifest;
  manifest.set_checkpoint(number);
  manifest.set_job_id(options_.job_id);
  *manifest.mutable_job() = options_.job;
  *manifest.mutable_layout() = EncodeLayout(options_.layout);
  manifest.set_server_count(static_cast<int>(stubs_.size()));
  WriteShardRequest request;
  request.set_checkpoint(number);
  request.set_job_id(options_.job_id);
  for (const auto& stub : stubs_) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
    const absl::Status status =
        FromGrpcStatus(stub->WriteShard(&context, request, manifest.add_shard()));
    if (!status.ok()) return status;
  }
  const absl::StatusOr<std::string> text = EncodeManifest(manifest);
  if (!text.ok()) return text.status();
  std::vector<uint64_t> kept = kept_;
  kept.push_back(number);
  while (static_cast<int>(kept.size()) > options_.keep) kept.erase(kept.begin());
  CommitCheckpointRequest commit;
  commit.set_checkpoint(number);
  commit.set_job_id(options_.job_id);
  commit.set_manifest(*text);
  for (const uint64_t each : kept) commit.add_keep(each);
  for (const bool everywhere : {false, true}) {
    commit.set_everywhere(everywhere);
    for (const auto& stub : stubs_) {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
      CommitCheckpointReply reply;
      const absl::Status status = FromGrpcStatus(stub->CommitCheckpoint(&context, commit, &reply));
      if (!status.ok()) return status;
    }
  }
  kept_ = kept;
  ++taken_;
  manifest_ = manifest;
  return absl::OkStatus();
}

}  // namespace torchps
