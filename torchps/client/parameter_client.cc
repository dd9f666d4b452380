#include "torchps/client/parameter_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"
#include "torchps/job/consistency_fields.h"
#include "torchps/transport/layout_codec.h"
#include "torchps/transport/shared_layout.h"

namespace torchps {
namespace {

constexpr absl::Duration kLeavePatience = absl::Seconds(3);
// Short, because the query in IsTooLate() only saves work on a gradient that servers would refuse.
constexpr absl::Duration kAskPatience = absl::Seconds(1);
// Time for one attempt to reach a server before the slot enters.
constexpr absl::Duration kReachTimeout = absl::Seconds(5);

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
      accounting_(options_.block_map.blocks().size(), options_.on_rolled_back),
      versions_(options_.block_map.blocks().size()),
      momentum_(
          WorkerMomentum::Create(options_.job.optimizer(), options_.layout, options_.block_map)),
      own_loop_(options_.loop != nullptr
                    ? nullptr
                    : std::make_unique<CallLoop>(CallLoop::Options{options_.clock, options_.stop})),
      loop_(options_.loop == nullptr ? own_loop_.get() : options_.loop) {
  HelloRequest hello;
  hello.set_protocol_version(kProtocolVersion);
  *hello.mutable_job() = options_.job;
  *hello.mutable_layout() = EncodeLayout(options_.whole_layout.value_or(options_.layout));
  hello.set_slot(options_.slot);
  hello.set_incarnation(options_.incarnation);
  hello.set_server_count(static_cast<int>(options_.servers.size()));
  hello.set_job_id(options_.job_id);
  hello.set_resumed_checkpoint(options_.resumed_checkpoint);
  if (options_.push_segment != nullptr && options_.job.wire().shared_memory()) {
    *hello.mutable_shared_memory() = EncodeOffer(options_.push_segment->offer());
  }
  for (const ServerEndpoint& endpoint : options_.servers) {
    hello.add_server_address(endpoint.address);
  }
  RetryDeadline::Options patience;
  patience.patience = options_.patience;
  patience.log = options_.log;
  patience.clock = options_.clock;
  patience.seed = options_.incarnation;
  for (const ServerEndpoint& endpoint : options_.servers) {
    servers_.push_back(std::make_unique<RemoteServer>(endpoint, hello, &options_.block_map,
                                                      &accounting_, patience));
  }
  leases_ = std::make_unique<SlotLeases>(options_.slot, options_.incarnation, AllServers());
  const EncodingSpec& encoding = options_.job.wire().push();
  if (encoding.kind() != EncodingSpec::FLOAT32) {
    error_feedback_ = std::make_unique<ErrorFeedback>(options_.block_map, encoding);
  }
}

absl::Status ParameterClient::ReachAll() {
  FanOutCall::Rules rules;
  // The servers do not know the slot yet, so they answer ABORTED.
  rules.forgotten = FanOutCall::Rules::Forgotten::kDone;
  return CallAll(
      AllServers(),
      [](RemoteServer& server) {
        return server.MakeRenew(kReachTimeout, [](const RenewReply&) {});
      },
      rules);
}

absl::StatusOr<Step> ParameterClient::Hello() {
  // The other workers wait for an admitted slot, so a slot that cannot reach all servers must not
  // be admitted by any.
  if (const absl::Status reached = ReachAll(); !reached.ok()) return reached;
  FanOutCall::Rules rules;
  rules.forgotten = FanOutCall::Rules::Forgotten::kFail;
  const absl::Status status = CallAll(
      AllServers(), [](RemoteServer& server) { return server.MakeHello(); }, rules);
  if (!status.ok()) return status;
  Step start = 0;
  Step last_step = 0;
  for (const auto& server : servers_) {
    start = std::max(start, server->start_clock());
    last_step = std::max(last_step, server->last_step());
  }
  if (momentum_ != nullptr && !greeted_ && last_step > 0) {
    options_.log(absl::StrCat("slot ", options_.slot, " pushed ", last_step,
                              " steps in an earlier process; their momentum is lost and starts "
                              "again from 0"));
  }
  greeted_ = true;
  return start;
}

bool ParameterClient::CanTakeEncoded() const {
  return error_feedback_ != nullptr && momentum_ == nullptr && options_.push_segment == nullptr;
}

void ParameterClient::TakeEncoded(EncodedBlocks* blocks) {
  TPS_CHECK(CanTakeEncoded(), "gradients go through here as they are");
  encoded_ = blocks;
  error_feedback_.reset();
}

absl::Status ParameterClient::Initialize(absl::Span<const float> values) {
  TPS_CHECK(static_cast<int64_t>(values.size()) == options_.layout.size(),
            "initial values of another length than the layout's");
  const int64_t trained_size = options_.layout.trained_size();
  return Push(/*step=*/0, /*weight=*/0, values.first(trained_size), values.subspan(trained_size))
      .status();
}

absl::StatusOr<PushResult> ParameterClient::Push(Step step, int64_t weight,
                                                 absl::Span<const float> gradients,
                                                 absl::Span<const float> averaged) {
  PendingPush push(PushOptions(step, weight, gradients, averaged));
  push.AllReady(CallLoop::Urgency::kSoon);
  return push.Finish();
}

std::unique_ptr<PendingPush> ParameterClient::BeginPush(
    Step step, int64_t weight, absl::Span<float> gradients, absl::Span<const float> averaged,
    absl::Span<const float> values, bool check_finite, uint32_t progress,
    std::function<bool(BlockId)> is_finite, int64_t share) {
  PendingPush::Options push = PushOptions(step, weight, gradients, averaged);
  push.share = share;
  push.progress = progress;
  push.check_finite = check_finite;
  push.is_finite = std::move(is_finite);
  if (momentum_ != nullptr) {
    TPS_CHECK(static_cast<int64_t>(values.size()) == options_.layout.size(),
              "a gradient on values of another length than the layout's");
    push.momentum = momentum_.get();
    push.gradients = gradients;
    push.computed_on = values.first(options_.layout.trained_size());
  }
  return std::make_unique<PendingPush>(std::move(push));
}

PendingPush::Options ParameterClient::PushOptions(Step step, int64_t weight,
                                                  absl::Span<const float> gradients,
                                                  absl::Span<const float> averaged) {
  EncodedBlocks* const encoded = step > 0 ? encoded_ : nullptr;
  const int64_t trained_size = encoded == nullptr ? options_.layout.trained_size() : 0;
  TPS_CHECK(static_cast<int64_t>(gradients.size()) == trained_size &&
                static_cast<int64_t>(averaged.size()) == options_.layout.averaged_size(),
            "a push of another length than the layout's");
  PendingPush::Options push;
  push.loop = loop_;
  push.clock = options_.clock;
  push.stop = options_.stop;
  push.block_map = &options_.block_map;
  push.accounting = &accounting_;
  push.servers = Owners();
  push.slot = options_.slot;
  push.incarnation = options_.incarnation;
  push.step = step;
  push.weight = weight;
  push.base_versions = versions_;
  push.segment = options_.push_segment;
  push.trained = gradients;
  push.averaged = averaged;
  // Initial values are never encoded.
  if (step > 0) push.error_feedback = error_feedback_.get();
  push.encoded = encoded;
  return push;
}

absl::StatusOr<PullResult> ParameterClient::Pull(Step clock, bool read_only,
                                                 absl::Span<float> values, CachedVersions* held,
                                                 std::function<void(BlockId)> on_block) {
  const PullKind kind = read_only ? PullKind::kReadOnly : PullKind::kBounded;
  return BeginPull(clock, kind, values, held, absl::InfiniteDuration(), std::move(on_block))
      ->Finish();
}

std::unique_ptr<PendingPull> ParameterClient::BeginPull(Step clock, PullKind kind,
                                                        absl::Span<float> values,
                                                        CachedVersions* held,
                                                        absl::Duration not_before,
                                                        std::function<void(BlockId)> on_block) {
  PendingPull::Options pull = PullOptions(clock, kind, values, held, not_before);
  pull.on_block = std::move(on_block);
  return std::make_unique<PendingPull>(std::move(pull));
}

PendingPull::Options ParameterClient::PullOptions(Step clock, PullKind kind,
                                                  absl::Span<float> values, CachedVersions* held,
                                                  absl::Duration not_before) {
  TPS_CHECK(static_cast<int64_t>(values.size()) == options_.layout.size(),
            "a pull into a vector of another length than the layout's");
  PendingPull::Options pull;
  pull.loop = loop_;
  pull.clock = options_.clock;
  pull.stop = options_.stop;
  pull.block_map = &options_.block_map;
  pull.servers = Owners();
  pull.slot = options_.slot;
  pull.incarnation = options_.incarnation;
  pull.step = clock;
  pull.kind = kind;
  pull.not_before = not_before;
  pull.values = values;
  pull.held = held;
  pull.exact = options_.job.wire().pull().kind() == EncodingSpec::FLOAT32;
  pull.versions = &versions_;
  return pull;
}

bool ParameterClient::IsTooLate(Step step) {
  const ConsistencySpec& consistency = options_.job.consistency();
  const bool has_rounds = HasRounds(consistency);
  const std::vector<RemoteServer*> owners = Owners();
  // By server: the latest version among the server's blocks in the pulled values.
  std::vector<Version> based_on(servers_.size(), 0);
  for (const BlockRange& block : options_.block_map.blocks()) {
    based_on[block.server] = std::max(based_on[block.server], versions_[block.id]);
  }
  const Version newest = *std::max_element(based_on.begin(), based_on.end());
  const double updates = update_pace_.UpdatesSinceLastStep(newest, options_.clock->Now());
  if (!has_rounds && updates <= static_cast<double>(LargestLag(consistency))) return false;
  size_t too_late = 0;
  FanOutCall::Rules rules;
  rules.patience = kAskPatience;
  // A restarted server does not know the slot and answers ABORTED. Its call counts as done, without
  // a reply.
  rules.forgotten = FanOutCall::Rules::Forgotten::kDone;
  const absl::Status asked = CallAll(
      owners,
      [&](RemoteServer& server) {
        return server.MakeRenew(kAskPatience, [&](const RenewReply& reply) {
          const int64_t lag = reply.max_version() - based_on[server.index()];
          if (has_rounds ? reply.min_clock() >= step : lag > LargestLag(consistency)) ++too_late;
        });
      },
      rules);
  return asked.ok() && too_late == owners.size();
}

absl::Status ParameterClient::Leave() {
  std::vector<RemoteServer*> greeted;
  for (const auto& server : servers_) {
    if (server->server_incarnation() != 0) greeted.push_back(server.get());
  }
  FanOutCall::Rules rules;
  rules.grace_after_stop = kLeavePatience;
  rules.patience = kLeavePatience;
  // A server that answers ABORTED has already dropped the slot.
  rules.forgotten = FanOutCall::Rules::Forgotten::kDone;
  return CallAll(
      greeted, [](RemoteServer& server) { return server.MakeLeave(kLeavePatience); }, rules);
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

absl::Status ParameterClient::CallAll(const std::vector<RemoteServer*>& servers,
                                      PlainRound::Make make, FanOutCall::Rules rules) {
  const auto round =
      std::make_shared<PlainRound>(options_.clock, options_.stop, rules, servers, std::move(make));
  loop_->Begin(round, CallLoop::Urgency::kSoon);
  return loop_->Await(*round);
}

}  // namespace torchps
