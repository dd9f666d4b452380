#include "worker/parameter_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "proto/layout_codec.h"
#include "worker/client_pull.h"
#include "worker/client_push.h"

namespace torchps {
namespace {

// Of calls that a server may park: then the same call is made again.
constexpr absl::Duration kParkTimeout = absl::Seconds(30);
// A transfer that is slower than this in one direction starts again from its beginning.
constexpr double kSlowestBytesPerSecond = 4 << 20;
// A push that has begun when the user stops gets so long to end cleanly.
constexpr absl::Duration kPushGrace = absl::Seconds(2);
constexpr absl::Duration kLeavePatience = absl::Seconds(3);

// Memory that gRPC may refer to until the last copy of reference() is gone.
class BorrowedMemory {
 public:
  BorrowedMemory() : reference_(&released_, [this](const void*) { released_.store(true); }) {}

  const std::shared_ptr<const void>& reference() const { return reference_; }

  // Blocks until nobody refers to the memory. gRPC drops its references while somebody polls, which
  // is done here. REQUIRES: no call is in flight on `queue`.
  void AwaitRelease(grpc::CompletionQueue* queue) {
    reference_.reset();
    while (!released_.load()) {
      void* tag;
      bool ok;
      queue->AsyncNext(&tag, &ok, std::chrono::system_clock::now() + std::chrono::milliseconds(10));
    }
  }

 private:
  std::atomic<bool> released_{false};
  std::shared_ptr<const void> reference_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterClient>> ParameterClient::Create(Options options) {
  if (options.servers.empty()) return absl::InvalidArgumentError("no server is given");
  if (static_cast<int>(options.servers.size()) != options.block_map.servers()) {
    return absl::InvalidArgumentError(absl::StrCat("the block map is for ",
                                                   options.block_map.servers(), " servers, but ",
                                                   options.servers.size(), " are given"));
  }
  return std::unique_ptr<ParameterClient>(new ParameterClient(std::move(options)));
}

ParameterClient::ParameterClient(Options options)
    : options_(std::move(options)),
      queue_(options_.stop),
      versions_(options_.block_map.blocks().size()),
      push_replies_(options_.servers.size()) {
  HelloRequest hello;
  hello.set_protocol_version(kProtocolVersion);
  *hello.mutable_job() = options_.job;
  *hello.mutable_layout() = EncodeLayout(options_.layout);
  hello.set_slot(options_.slot);
  hello.set_incarnation(options_.incarnation);
  hello.set_server_count(static_cast<int>(options_.servers.size()));
  hello.set_job_id(options_.job_id);
  ServerPatience::Options patience;
  patience.patience = options_.patience;
  patience.say = options_.say;
  patience.clock = options_.clock;
  patience.seed = options_.incarnation;
  for (const ServerEndpoint& endpoint : options_.servers) {
    servers_.push_back(std::make_unique<RemoteServer>(endpoint, hello, patience));
  }
}

absl::StatusOr<Step> ParameterClient::Hello() {
  CallRound::Rules rules;
  rules.forgotten = CallRound::Rules::Forgotten::kFail;
  const absl::Status status = CallAll(
      AllServers(), [](RemoteServer& server) { return server.MakeHello(); }, rules);
  if (!status.ok()) return status;
  Step start = 0;
  for (const auto& server : servers_) {
    if (absl::Status taken = server->TakeHello(); !taken.ok()) return taken;
    start = std::max(start, server->start_clock());
  }
  return start;
}

absl::Status ParameterClient::Initialize(absl::Span<const float> values) {
  TPS_CHECK(static_cast<int64_t>(values.size()) == options_.layout.size(),
            "initial values of another length than the layout's");
  // An OK reply says all there is to say: every block has its values.
  return PushFrom(/*step=*/0, /*weight=*/0, [values](const BlockRange& block) {
    return values.subspan(block.offset, block.length);
  });
}

absl::StatusOr<PushResult> ParameterClient::Push(Step step, int64_t weight,
                                                 absl::Span<const float> gradients,
                                                 absl::Span<const float> averaged) {
  const int64_t trained_size = options_.layout.trained_size();
  TPS_CHECK(static_cast<int64_t>(gradients.size()) == trained_size &&
                static_cast<int64_t>(averaged.size()) == options_.layout.averaged_size(),
            "a push of another length than the layout's");
  const absl::Status status =
      PushFrom(step, weight, [gradients, averaged, trained_size](const BlockRange& block) {
        return block.averaged ? averaged.subspan(block.offset - trained_size, block.length)
                              : gradients.subspan(block.offset, block.length);
      });
  if (!status.ok()) return status;
  PushResult result;
  for (const RemoteServer* server : Owners()) {
    const PushReply& reply = push_replies_[server->index()];
    if (absl::Status counted = CountVerdicts(*server, reply, result); !counted.ok()) {
      return counted;
    }
  }
  return result;
}

absl::Status ParameterClient::PushFrom(
    Step step, int64_t weight,
    const std::function<absl::Span<const float>(const BlockRange&)>& payload_of) {
  BorrowedMemory memory;
  const auto make = [&](RemoteServer& server) {
    const std::vector<BlockId>& owned = options_.block_map.owned_by(server.index());
    std::vector<ClientPush::Frame> frames;
    frames.reserve(owned.size());
    for (const BlockId id : owned) {
      PushHeader header;
      header.slot = options_.slot;
      header.incarnation = options_.incarnation;
      header.step = step;
      header.block = id;
      header.base_version = versions_[id];
      header.server_life = server.life();
      header.weight = static_cast<uint32_t>(weight);
      header.block_count = static_cast<uint32_t>(owned.size());
      frames.push_back({header, payload_of(options_.block_map.blocks()[id])});
    }
    PushReply& reply = push_replies_[server.index()];
    reply.Clear();
    return std::make_unique<ClientPush>(server.generic_stub(), std::move(frames),
                                        memory.reference(), TransferTimeout(server), &reply);
  };
  CallRound::Rules rules;
  rules.grace_after_stop = kPushGrace;
  rules.may_park = true;
  const absl::Status status = CallAll(Owners(), make, rules);
  memory.AwaitRelease(queue_.get());
  return status;
}

absl::Status ParameterClient::CountVerdicts(const RemoteServer& server, const PushReply& reply,
                                            PushResult& result) const {
  const size_t expected = options_.block_map.owned_by(server.index()).size();
  if (static_cast<size_t>(reply.block_size()) != expected) {
    return server.WithName(absl::InternalError(absl::StrCat(
        "a push was answered with ", reply.block_size(), " verdicts; expected ", expected)));
  }
  for (const BlockVerdict& verdict : reply.block()) {
    switch (verdict.verdict()) {
      case ACCEPTED:
        ++result.accepted;
        break;
      case SCALED:
        ++result.scaled;
        break;
      case ADMITTED:
        ++result.admitted;
        break;
      case REJECTED_STALE:
        ++result.rejected;
        break;
      case LATE:
        ++result.late;
        break;
      default:
        return server.WithName(
            absl::InternalError(absl::StrCat("block ", verdict.block(), " has no known verdict")));
    }
    if (verdict.duplicate()) ++result.duplicates;
    result.max_lag = std::max(result.max_lag, verdict.lag());
  }
  return absl::OkStatus();
}

absl::StatusOr<PullResult> ParameterClient::Pull(Step clock, bool read_only,
                                                 absl::Span<float> values) {
  TPS_CHECK(static_cast<int64_t>(values.size()) == options_.layout.size(),
            "a pull into a vector of another length than the layout's");
  PullResult result;
  result.floor = std::numeric_limits<Step>::max();
  const auto make = [&](RemoteServer& server) {
    PullRequest request;
    request.set_slot(options_.slot);
    request.set_incarnation(options_.incarnation);
    request.set_clock(clock);
    request.set_server_life(server.life());
    request.set_read_only(read_only);
    const size_t expected = options_.block_map.owned_by(server.index()).size();
    // Blocks that this try has brought.
    auto brought = std::make_shared<absl::flat_hash_set<BlockId>>();
    return std::make_unique<ClientPull>(
        server.generic_stub(), request, expected, TransferTimeout(server),
        [this, &server, &result, values, brought](const PullHeader& header,
                                                  const FramePayload& payload) -> absl::Status {
          const std::vector<BlockRange>& blocks = options_.block_map.blocks();
          if (header.block >= blocks.size() || blocks[header.block].server != server.index() ||
              !brought->insert(header.block).second) {
            return absl::InvalidArgumentError(absl::StrCat(
                "sent block ", header.block, ", which it does not own or has already sent"));
          }
          const BlockRange& block = blocks[header.block];
          if (payload.floats() != block.length) {
            return absl::InvalidArgumentError(absl::StrCat("sent block ", header.block, " with ",
                                                           payload.floats(), " elements; expected ",
                                                           block.length));
          }
          payload.CopyTo(values.data() + block.offset);
          versions_[block.id] = header.version;
          result.floor = std::min(result.floor, header.floor);
          const auto parked_us = static_cast<int64_t>(header.parked_us);
          result.parked = std::max(result.parked, absl::Microseconds(parked_us));
          return absl::OkStatus();
        });
  };
  CallRound::Rules rules;
  rules.may_park = true;
  // Whoever only reads was never greeted, and need not be.
  if (read_only) rules.forgotten = CallRound::Rules::Forgotten::kFail;
  const std::vector<RemoteServer*> owners = Owners();
  if (absl::Status status = CallAll(owners, make, rules); !status.ok()) return status;
  for (RemoteServer* server : owners) server->HasServed();
  return result;
}

absl::Status ParameterClient::Leave() {
  std::vector<RemoteServer*> greeted;
  for (const auto& server : servers_) {
    if (server->life() != 0) greeted.push_back(server.get());
  }
  CallRound::Rules rules;
  rules.grace_after_stop = kLeavePatience;
  rules.patience = kLeavePatience;
  // It has let the slot go already.
  rules.forgotten = CallRound::Rules::Forgotten::kDone;
  return CallAll(
      greeted, [](RemoteServer& server) { return server.MakeLeave(kLeavePatience); }, rules);
}

void ParameterClient::Renew(absl::Duration timeout) {
  for (const auto& server : servers_) server->Renew(timeout);
}

std::vector<RemoteServer*> ParameterClient::AllServers() {
  std::vector<RemoteServer*> all;
  for (const auto& server : servers_) all.push_back(server.get());
  return all;
}

std::vector<RemoteServer*> ParameterClient::Owners() {
  std::vector<RemoteServer*> owners;
  for (const auto& server : servers_) {
    if (!options_.block_map.owned_by(server->index()).empty()) owners.push_back(server.get());
  }
  return owners;
}

absl::Duration ParameterClient::TransferTimeout(const RemoteServer& server) const {
  double bytes = 0;
  for (const BlockId id : options_.block_map.owned_by(server.index())) {
    bytes += static_cast<double>(options_.block_map.blocks()[id].length * sizeof(float));
  }
  return kParkTimeout + absl::Seconds(bytes / kSlowestBytesPerSecond);
}

absl::Status ParameterClient::CallAll(const std::vector<RemoteServer*>& servers,
                                      CallRound::MakeCall make, CallRound::Rules rules) {
  return CallRound(queue_.get(), options_.clock, options_.stop, rules, std::move(make))
      .Run(servers);
}

}  // namespace torchps
