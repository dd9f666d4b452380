#include "worker/pending_pull.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "worker/client_pull.h"
#include "worker/transfer_timeout.h"

namespace torchps {
namespace {

CallRound::Rules PullRules(bool read_only) {
  CallRound::Rules rules;
  rules.may_park = true;
  // Whoever only reads was never greeted, and need not be.
  if (read_only) rules.forgotten = CallRound::Rules::Forgotten::kFail;
  return rules;
}

}  // namespace

class PendingPull::Round final : public CallRound {
 public:
  explicit Round(Options options)
      : CallRound(options.clock, options.stop, PullRules(options.read_only), options.servers),
        options_(std::move(options)),
        versions_(options_.block_map->blocks().size()) {
    result_.floor = std::numeric_limits<Step>::max();
  }

  // On any thread, once the round has finished.

  const PullResult& result() const { return result_; }
  const std::vector<Version>& versions() const { return versions_; }

 private:
  // Blocks that one try has brought.
  using Brought = absl::flat_hash_set<BlockId>;

  std::unique_ptr<ClientCall> MakeCall(RemoteServer& server) override {
    PullRequest request;
    request.set_slot(options_.slot);
    request.set_incarnation(options_.incarnation);
    request.set_clock(options_.step);
    request.set_server_life(server.life());
    request.set_read_only(options_.read_only);
    const size_t expected = options_.block_map->owned_by(server.index()).size();
    return std::make_unique<ClientPull>(server.generic_stub(), request, expected,
                                        TransferTimeout(*options_.block_map, server.index()),
                                        [this, &server, brought = std::make_shared<Brought>()](
                                            const PullHeader& header, const FramePayload& payload) {
                                          return TakeFrame(server, header, payload, *brought);
                                        });
  }

  absl::Status TakeFrame(RemoteServer& server, const PullHeader& header,
                         const FramePayload& payload, Brought& brought) {
    const std::vector<BlockRange>& blocks = options_.block_map->blocks();
    if (header.block >= blocks.size() || blocks[header.block].server != server.index() ||
        !brought.insert(header.block).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("sent block ", header.block, ", which it does not own or has already sent"));
    }
    const BlockRange& block = blocks[header.block];
    if (payload.encoding() == EncodingSpec::TOP_K) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sent block ", header.block, " in TOP_K; expected an encoding that has all values"));
    }
    if (const absl::Status checked = payload.Check(block.length); !checked.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("sent block ", header.block, ": ", checked.message()));
    }
    payload.CopyTo(options_.values.subspan(block.offset, block.length));
    versions_[block.id] = header.version;
    result_.floor = std::min(result_.floor, header.floor);
    const auto parked_us = static_cast<int64_t>(header.parked_us);
    result_.parked = std::max(result_.parked, absl::Microseconds(parked_us));
    server.HasServed();
    return absl::OkStatus();
  }

  const Options options_;
  std::vector<Version> versions_;
  PullResult result_;
};

PendingPull::PendingPull(Options options)
    : loop_(options.loop),
      versions_(options.versions),
      round_(std::make_shared<Round>(std::move(options))) {
  loop_->Begin(round_);
}

PendingPull::~PendingPull() {
  if (finished_) return;
  loop_->Post([round = round_] { round->Fail(absl::CancelledError("the pull was dropped")); });
  round_->Wait().IgnoreError();
}

absl::StatusOr<PullResult> PendingPull::Finish() {
  const absl::Status status = round_->Wait();
  finished_ = true;
  if (!status.ok()) return status;
  *versions_ = round_->versions();
  return round_->result();
}

}  // namespace torchps
