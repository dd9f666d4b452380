#include "torchps/client/pending_pull.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "torchps/client/calls/client_call.h"
#include "torchps/client/calls/retry_deadline.h"
#include "torchps/transport/shared_values.h"

namespace torchps {
namespace {

// Maximum number of passes over the blocks in shared memory. A pass skips blocks that the server is
// changing, and each change lasts less than a millisecond. If the server crashed during a change,
// the change never ends. After the last pass, the client pulls over the network, which reports the
// crash.
constexpr int kMaxPasses = 500;
constexpr Version kNoVersion = -1;

FanOutCall::Rules PullRules(PullKind kind, absl::Duration not_before) {
  FanOutCall::Rules rules;
  rules.not_before = not_before;
  rules.may_park = true;
  // Read-only clients send no Hello, and servers do not require it.
  if (kind == PullKind::kReadOnly) rules.forgotten = FanOutCall::Rules::Forgotten::kGreetIfKnown;
  return rules;
}

}  // namespace

class PendingPull::Round final : public FanOutCall {
 public:
  explicit Round(Options options)
      : FanOutCall(options.clock, options.stop, PullRules(options.kind, options.not_before),
                   options.servers),
        options_(std::move(options)),
        versions_(options_.block_map->blocks().size()),
        rest_by_network_(options_.block_map->servers()),
        incarnations_(options_.block_map->servers()) {
    // The versions of the values are unknown until the pull succeeds.
    if (options_.held != nullptr) std::swap(had_, *options_.held);
    result_.min_clock = std::numeric_limits<Step>::max();
  }

  // The following three may be called on any thread after the round is finished.

  const PullResult& result() const { return result_; }
  const std::vector<Version>& versions() const { return versions_; }
  CachedVersions held() const { return {versions_, incarnations_}; }

 private:
  // Blocks received in one attempt.
  using Brought = absl::flat_hash_set<BlockId>;

  std::unique_ptr<ClientCall> MakeCall(RemoteServer& server) override {
    began_ = std::min(began_, options_.clock->Now());
    PullRequest request;
    request.set_slot(options_.slot);
    request.set_incarnation(options_.incarnation);
    request.set_clock(options_.step);
    request.set_server_incarnation(server.server_incarnation());
    request.set_read_only(options_.kind == PullKind::kReadOnly);
    request.set_ahead(options_.kind == PullKind::kAhead);
    incarnations_[server.index()] = server.server_incarnation();
    // A slot pulls only after the coordinator has started the job, so the server must have the
    // model.
    if (options_.kind != PullKind::kReadOnly) server.ExpectModel();
    // Read-only pulls do not use shared memory: a restarted server answers them without a new
    // Hello, but its values are in other memory.
    if (options_.kind != PullKind::kReadOnly && !rest_by_network_[server.index()] &&
        server.shared_values() != nullptr) {
      request.set_shared_memory(true);
      return std::make_unique<ClientPull>(server.generic_stub(), request, /*expected_frames=*/1,
                                          TransferTimeout(*options_.block_map, server.index()),
                                          [this, &server, values = server.shared_values()](
                                              const PullHeader& header, const FramePayload&) {
                                            return ReadShared(server, header, *values);
                                          });
    }
    const bool knows = KnowsWhatItHas(server);
    const std::vector<BlockId>& all = options_.block_map->all_owned_by(server.index());
    if (knows || !options_.block_map->is_whole()) {
      for (const BlockId whole_id : all) {
        const std::optional<BlockId> id = options_.block_map->Find(whole_id);
        request.add_have_version(!id.has_value() ? kUnwantedBlock : knows ? Had(*id) : kNoVersion);
      }
    }
    const size_t expected = all.size();
    return std::make_unique<ClientPull>(server.generic_stub(), request, expected,
                                        TransferTimeout(*options_.block_map, server.index()),
                                        [this, &server, brought = std::make_shared<Brought>()](
                                            const PullHeader& header, const FramePayload& payload) {
                                          return TakeFrame(server, header, payload, *brought);
                                        });
  }

  // True if the held blocks of this server equal the values that the server would send.
  bool KnowsWhatItHas(const RemoteServer& server) const {
    // Read-only pulls must return exact values, but values from earlier pulls may have passed a
    // lossy encoding.
    if (had_.versions.empty() || (options_.kind == PullKind::kReadOnly && !options_.exact))
      return false;
    return server.server_incarnation() != 0 &&
           had_.incarnations[server.index()] == server.server_incarnation();
  }

  // Returns the held version. Averaged values count as unknown, because the worker's forward pass
  // changes them.
  Version Had(BlockId id) const {
    return options_.block_map->blocks()[id].averaged ? kNoVersion : had_.versions[id];
  }

  bool Suffices(RemoteServer& server) override { return !rest_by_network_[server.index()]; }

  // Copies the values from shared memory. `header` is the server's permission to read them.
  absl::Status ReadShared(RemoteServer& server, const PullHeader& header,
                          const SharedValues& shared) {
    if (!header.shared) {
      return absl::InvalidArgumentError("sent a block where its shared memory was asked for");
    }
    const std::vector<BlockId>& owned = options_.block_map->owned_by(server.index());
    const bool knows = KnowsWhatItHas(server) && options_.exact;
    std::vector<size_t> left(owned.size());
    std::iota(left.begin(), left.end(), size_t{0});
    for (int pass = 0; pass < kMaxPasses && !left.empty(); ++pass) {
      if (pass > 0) std::this_thread::yield();
      const auto is_read = [&](size_t index) {
        const BlockRange& block = options_.block_map->blocks()[owned[index]];
        // Initial values may be written more than once, each time as version 0.
        const Version have = knows && Had(block.id) > 0 ? Had(block.id) : kNoVersion;
        const std::optional<Version> version =
            shared.Read(index, have, options_.values.data() + block.offset);
        if (version.has_value()) Placed(block.id, *version);
        return version.has_value();
      };
      left.erase(std::remove_if(left.begin(), left.end(), is_read), left.end());
    }
    rest_by_network_[server.index()] = !left.empty();
    TakeGrant(server, header);
    return absl::OkStatus();
  }

  void TakeGrant(RemoteServer& server, const PullHeader& header) {
    result_.min_clock = std::min(result_.min_clock, header.min_clock);
    const auto parked_us = static_cast<int64_t>(header.parked_us);
    result_.parked = std::max(result_.parked, absl::Microseconds(parked_us));
    result_.moving = options_.clock->Now() - began_ - result_.parked;
    server.ExpectModel();
  }

  absl::Status TakeFrame(RemoteServer& server, const PullHeader& header,
                         const FramePayload& payload, Brought& brought) {
    const std::vector<BlockRange>& blocks = options_.block_map->blocks();
    const std::optional<BlockId> id = options_.block_map->Find(header.block);
    // A restarted server that was not greeted again also sends blocks of other parts of the model.
    const bool is_own = id.has_value() && blocks[*id].server == server.index();
    const bool may_be_others = !id.has_value() && !options_.block_map->is_whole();
    if (!(is_own || may_be_others) || !brought.insert(header.block).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("sent block ", header.block, ", which it does not own or has already sent"));
    }
    if (!is_own) {
      TookFrame(server, header);
      return absl::OkStatus();
    }
    const BlockRange& block = blocks[*id];
    if (header.unchanged) {
      if (!KnowsWhatItHas(server) || Had(block.id) <= 0 || header.version != Had(block.id)) {
        return absl::InvalidArgumentError(
            absl::StrCat("did not send block ", header.block, " of version ", header.version,
                         ", but the worker does not hold that version"));
      }
      Took(server, block.id, header);
      return absl::OkStatus();
    }
    if (payload.encoding() == EncodingSpec::TOP_K) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sent block ", header.block, " in TOP_K; expected an encoding that has all values"));
    }
    if (const absl::Status checked = payload.Check(block.length); !checked.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("sent block ", header.block, ": ", checked.message()));
    }
    payload.CopyTo(options_.values.subspan(block.offset, block.length));
    Took(server, block.id, header);
    return absl::OkStatus();
  }

  void Placed(BlockId block, Version version) {
    versions_[block] = version;
    if (options_.on_block != nullptr) options_.on_block(block);
  }

  void Took(RemoteServer& server, BlockId block, const PullHeader& header) {
    Placed(block, header.version);
    TookFrame(server, header);
  }

  void TookFrame(RemoteServer& server, const PullHeader& header) {
    rest_by_network_[server.index()] = false;
    TakeGrant(server, header);
  }

  const Options options_;
  absl::Duration began_ = absl::InfiniteDuration();
  std::vector<Version> versions_;
  // By server: true if shared memory did not provide all blocks, so that the rest is pulled over
  // the network.
  std::vector<bool> rest_by_network_;
  // Versions of the values before the pull.
  CachedVersions had_;
  // By server: the incarnation that the latest call addressed.
  std::vector<uint64_t> incarnations_;
  PullResult result_;
};

PendingPull::PendingPull(Options options)
    : loop_(options.loop),
      clock_(options.clock),
      not_before_(options.not_before),
      versions_(options.versions),
      held_(options.held),
      round_(std::make_shared<Round>(std::move(options))) {
  loop_->Begin(round_, not_before_ == absl::InfiniteDuration() ? CallLoop::Urgency::kSoon
                                                               : CallLoop::Urgency::kNow);
}

PendingPull::~PendingPull() {
  if (finished_) return;
  loop_->Post([round = round_] { round->Fail(absl::CancelledError("the pull was dropped")); },
              CallLoop::Urgency::kSoon);
  loop_->Await(*round_).IgnoreError();
}

absl::StatusOr<PullResult> PendingPull::Finish() {
  if (clock_->Now() < not_before_) {
    loop_->Post([round = round_] { round->Hurry(); }, CallLoop::Urgency::kSoon);
  }
  const absl::Status status = loop_->Await(*round_);
  finished_ = true;
  if (!status.ok()) return status;
  *versions_ = round_->versions();
  if (held_ != nullptr) *held_ = round_->held();
  return round_->result();
}

}  // namespace torchps
