#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "torchps/common/block_map.h"
#include "torchps/common/types.h"
#include "torchps/proto/parameter_service.grpc.pb.h"
#include "torchps/security/certificate_files.h"

namespace torchps {

// Returns a channel to "HOST:PORT" with its own connection. It accepts messages as large as a
// frame. Uses TLS if `certificates` is not null.
std::shared_ptr<grpc::Channel> PlainChannel(
    const std::string& address, const std::shared_ptr<CertificateFiles>& certificates = nullptr);

// Simulates one slot at one server with plain Protobuf stubs. Makes each call once, with a
// deadline, and returns the result. Can also send requests that real workers never send.
//
// Not thread-safe.
class PlainWorker {
 public:
  // `hello` is the request that Hello() sends: job, layout, server index and count, slot and
  // incarnation.
  PlainWorker(std::shared_ptr<grpc::Channel> channel, HelloRequest hello);

  ParameterService::Stub& stub() { return *stub_; }
  const HelloRequest& hello() const { return hello_; }
  uint64_t server_incarnation() const { return hello_reply_.server_incarnation(); }
  // The reply to the last successful Hello.
  const HelloReply& hello_reply() const { return hello_reply_; }
  const BlockMap& map() const { return map_; }
  // The blocks of this server.
  const std::vector<BlockRange>& blocks() const { return blocks_; }

  absl::Status Hello();
  // Initializes each element of this server's blocks with `value`.
  absl::Status Initialize(float value);
  absl::Status Pull(Step clock);
  absl::Status ReadOnlyPull();
  // Pushes a gradient with all elements equal to `gradient`. The base versions are those of the
  // last pull. PushBlocks() uses one value for each block.
  absl::StatusOr<PushReply> Push(Step step, float gradient);
  absl::StatusOr<PushReply> PushBlocks(Step step, const std::function<float(BlockId)>& gradient);
  absl::Status Renew();
  absl::Status Leave();
  absl::StatusOr<ServerStatus> Status(bool include_ledger = false);

  // Returns the frame that Push() sends for one block.
  PushFrame Frame(Step step, BlockId block, float gradient) const;
  // Pushes arbitrary frames.
  absl::StatusOr<PushReply> Send(const std::vector<PushFrame>& frames);
  absl::Status Pull(const PullRequest& request);
  PullRequest RequestPull(Step clock) const;

  // Results of the last pull, by block.
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
