#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/block_map.h"
#include "common/ids.h"
#include "grpcpp/channel.h"
#include "proto/parameter_service.grpc.pb.h"
#include "security/certificate_files.h"

namespace torchps {

// A channel to "HOST:PORT" that shares its connection with no other and lets blocks through; by TLS
// if there are certificates.
std::shared_ptr<grpc::Channel> PlainChannel(
    const std::string& address, const std::shared_ptr<CertificateFiles>& certificates = nullptr);

// One slot at one server by Protobuf's own stub and messages: every call once, with a deadline, and
// whatever it answers handed back. It can be made to say what no worker of ours would.
//
// Not thread-safe.
class PlainWorker {
 public:
  // `hello` is what it says first: job, layout, placement, slot and incarnation.
  PlainWorker(std::shared_ptr<grpc::Channel> channel, HelloRequest hello);

  ParameterService::Stub& stub() { return *stub_; }
  const HelloRequest& hello() const { return hello_; }
  uint64_t server_incarnation() const { return hello_reply_.server_incarnation(); }
  // Of the last Hello that succeeded.
  const HelloReply& hello_reply() const { return hello_reply_; }
  const BlockMap& map() const { return map_; }
  // Of this server.
  const std::vector<BlockRange>& blocks() const { return blocks_; }

  absl::Status Hello();
  // All elements of all blocks.
  absl::Status Initialize(float value);
  absl::Status Pull(Step clock);
  absl::Status ReadOnlyPull();
  // Every element of every block, computed on what the last pull brought.
  absl::StatusOr<PushReply> Push(Step step, float gradient);
  absl::StatusOr<PushReply> PushBlocks(Step step, const std::function<float(BlockId)>& gradient);
  absl::Status Renew();
  absl::Status Leave();
  absl::StatusOr<ServerStatus> Status(bool include_ledger = false);

  // What Push sends for one block.
  PushFrame Frame(Step step, BlockId block, float gradient) const;
  // Any frames at all.
  absl::StatusOr<PushReply> Send(const std::vector<PushFrame>& frames);
  absl::Status Pull(const PullRequest& request);
  PullRequest RequestPull(Step clock) const;

  // Of the last pull, by block.
  const std::vector<std::vector<float>>& values() const { return values_; }
  const std::vector<Version>& versions() const { return versions_; }

 private:
  const HelloRequest hello_;
  const std::unique_ptr<ParameterService::Stub> stub_;
  BlockMap map_;
  std::vector<BlockRange> blocks_;
  HelloReply hello_reply_;
  std::vector<std::vector<float>> values_;
  std::vector<Version> versions_;
};

}  // namespace torchps
