#include "torchps/client/pending_push.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "torchps/client/borrowed_memory.h"
#include "torchps/client/calls/client_call.h"
#include "torchps/client/calls/retry_deadline.h"
#include "torchps/common/check.h"
#include "torchps/common/cpu/finite_check.h"
#include "torchps/transport/frame_codec.h"
#include "torchps/transport/frame_payload.h"
#include "torchps/transport/shared_values.h"
#include "torchps/transport/status_codec.h"

namespace torchps {
namespace {

// The time that a push in progress gets to end cleanly after a stop.
constexpr absl::Duration kPushGrace = absl::Seconds(2);

FanOutCall::Rules PushRules() {
  FanOutCall::Rules rules;
  rules.grace_after_stop = kPushGrace;
  rules.may_park = true;
  return rules;
}

// Returns the offset of the first averaged element in the flat vector. Averaged elements are at the
// end.
int64_t FirstAveraged(const BlockMap& map) {
  for (const BlockRange& block : map.blocks()) {
    if (block.averaged) return block.offset;
  }
  return 0;
}

}  // namespace

class PendingPush::Round final : public FanOutCall {
 public:
  explicit Round(Options options)
      : FanOutCall(options.clock, options.stop, PushRules(), options.servers),
        options_(std::move(options)),
        shared_buffer_(options_.segment == nullptr ? -1
                                                   : options_.segment->GetBuffer(options_.trained)),
        averaged_from_(FirstAveraged(*options_.block_map)),
        is_reported_(options_.block_map->blocks().size()),
        is_ready_(options_.block_map->blocks().size()),
        is_withheld_(options_.block_map->blocks().size()),
        is_alone_(options_.block_map->blocks().size()),
        ready_(options_.block_map->servers()),
        is_tried_(options_.block_map->servers()),
        shares_(options_.block_map->servers()) {}

  // The following functions run on the polling thread, like all functions of a round.

  void SetWeight(double weight) { weight_ = weight; }

  void AddReady(BlockId block) {
    // If the push has already failed, the caller may have released the elements.
    if (finished()) return;
    TPS_CHECK(!is_reported_[block], "a block became ready twice");
    is_reported_[block] = true;
    const BlockRange& range = options_.block_map->blocks()[block];
    if (options_.check_finite && CoversAll(GetAbsent(block), range.length)) {
      held_.push_back(block);
    } else if ((options_.check_finite && !IsFinite(range)) || !TakeMomentum(range)) {
      is_withheld_[block] = true;
      ++withheld_;
      held_.push_back(block);
    } else {
      some_finite_ = true;
      Send(block);
    }
    // Before the first block is sent, the whole step may still be skipped.
    if (!some_finite_) {
      if (held_.size() < is_reported_.size()) return;
      if (withheld_ > 0) {
        result_.skipped = true;
        SayNothing();
        return;
      }
    }
    for (const BlockId held : held_) Send(held);
    held_.clear();
  }

  void AddAll(const ElementRuns& absent) {
    // If the push has already failed, the borrowed objects may be gone, including the client's.
    if (finished()) return;
    for (const BlockRange& block : options_.block_map->blocks()) {
      if (is_reported_[block.id] || block.averaged || absent.empty()) continue;
      ElementRuns runs = RunsWithin(absent, block.offset, block.offset + block.length);
      if (runs.empty()) continue;
      if (runs.size() > kMaxAbsentRuns) {
        Fail(absl::InvalidArgumentError(absl::StrCat(
            "block ", block.id, " has ", runs.size(), " runs of elements without a gradient; ",
            "expected at most ", kMaxAbsentRuns, "; lower wire.block_bytes")));
        return;
      }
      absent_.emplace(block.id, std::move(runs));
    }
    for (const BlockRange& block : options_.block_map->blocks()) {
      if (!is_reported_[block.id]) AddReady(block.id);
    }
  }

  // The following three may be called on any thread after the round is finished.

  const PushResult& result() const { return result_; }
  bool TryRelease() { return memory_.TryRelease(); }
  void AwaitRelease() { memory_.AwaitRelease(); }

 private:
  bool ComesEncoded(const BlockRange& block) const {
    return options_.encoded != nullptr && !block.averaged;
  }

  bool IsFinite(const BlockRange& block) const {
    if (ComesEncoded(block)) return options_.encoded->IsFinite(block.id);
    if (options_.is_finite != nullptr && !block.averaged) return options_.is_finite(block.id);
    return FirstNonFinite(Elements(block)) < 0;
  }

  // Applies the worker momentum to the block. Runs here because each block passes here exactly
  // once, even if the push is repeated, and is probably still in the cache. Runs as a separate pass
  // because the finite check must precede the change of the momentum. Returns false if the block
  // must be withheld.
  bool TakeMomentum(const BlockRange& block) {
    if (options_.momentum == nullptr || block.averaged) return true;
    return options_.momentum->Apply(block.id, options_.computed_on, GetAbsent(block.id),
                                    options_.gradients.subspan(block.offset, block.length));
  }

  void Send(BlockId block) {
    is_ready_[block] = true;
    is_alone_[block] = is_withheld_[block] || !GetAbsent(block).empty();
    ready_[options_.block_map->blocks()[block].server].push_back(block);
    MoreToSend();
  }

  std::unique_ptr<ClientCall> MakeCall(RemoteServer& server) override {
    if (ready_[server.index()].empty()) return nullptr;
    ClientPush::NextFrame next_frame = [this, &server](size_t index) {
      return Frame(server, index);
    };
    const bool can_share = server.shared_values() != nullptr;
    // The first attempt decides whether the numbers are encoded, so that each attempt sends the
    // same numbers.
    if (!is_tried_[server.index()]) shares_[server.index()] = shared_buffer_ >= 0 && can_share;
    is_tried_[server.index()] = true;
    if (shares_[server.index()] && can_share) {
      next_frame = [this, &server,
                    runs = std::make_shared<SharedRuns>(options_.block_map, server.index())](
                       size_t) { return SharedFrame(server, *runs); };
    }
    return std::make_unique<ClientPush>(
        server.generic_stub(), TransferTimeout(*options_.block_map, server.index()),
        std::move(next_frame),
        [this, &server, server_incarnation = server.server_incarnation()](const PushReply& reply) {
          return CountVerdicts(server, server_incarnation, reply);
        });
  }

  PushHeader GetHeader(const RemoteServer& server, const BlockRange& block) const {
    PushHeader header;
    header.slot = options_.slot;
    header.incarnation = options_.incarnation;
    header.step = options_.step;
    header.block = options_.block_map->WholeId(block.id);
    header.part = !options_.block_map->is_whole();
    header.base_version = options_.base_versions[block.id];
    header.server_incarnation = server.server_incarnation();
    header.weight = static_cast<uint32_t>(options_.weight);
    header.share = static_cast<uint32_t>(options_.share);
    if (weight_.has_value()) header.SetLossWeight(*weight_);
    header.progress = options_.progress;
    header.block_count = static_cast<uint32_t>(options_.block_map->owned_by(server.index()).size());
    header.withheld = is_withheld_[block.id];
    // Withheld blocks do not list absent elements.
    if (!header.withheld) header.absent = GetAbsent(block.id);
    return header;
  }

  const ElementRuns& GetAbsent(BlockId block) const {
    static const auto* const kNone = new ElementRuns();
    if (absent_.empty()) return *kNone;
    const auto found = absent_.find(block);
    return found == absent_.end() ? *kNone : found->second;
  }

  // True if the block's frame contains no elements and the server does not read it from shared
  // memory.
  static bool IsEmpty(const PushHeader& header, const BlockRange& block) {
    return header.withheld || CoversAll(header.absent, block.length);
  }

  std::optional<ClientPush::Frame> Frame(const RemoteServer& server, size_t index) const {
    const std::vector<BlockId>& ready = ready_[server.index()];
    if (index >= ready.size()) return std::nullopt;
    const BlockRange& block = options_.block_map->blocks()[ready[index]];
    const PushHeader header = GetHeader(server, block);
    const bool is_last = index + 1 == header.block_count;
    if (IsEmpty(header, block)) return ClientPush::Frame{Empty(header), is_last};
    if (ComesEncoded(block)) return ClientPush::Frame{AsItCame(header, block), is_last};
    // If the first attempt shared the floats, later attempts send the same floats, not an encoding.
    if (options_.error_feedback == nullptr || block.averaged || shares_[server.index()]) {
      return ClientPush::Frame{EncodePushFrame(header, Elements(block), memory_.reference()),
                               is_last};
    }
    return ClientPush::Frame{EncodeLossy(header, block), is_last};
  }

  static grpc::ByteBuffer Empty(const PushHeader& header) {
    return EncodePushFrame(header, absl::Span<const float>(), nullptr);
  }

  grpc::ByteBuffer AsItCame(PushHeader header, const BlockRange& block) const {
    header.encoding = options_.encoded->encoding();
    return EncodePushFrame(header, options_.encoded->GetBytes(block.id), memory_.reference());
  }

  grpc::ByteBuffer EncodeLossy(PushHeader header, const BlockRange& block) const {
    header.encoding = options_.error_feedback->encoding();
    return EncodePushFrame(
        header,
        options_.error_feedback->Encode(block.id, options_.step, Elements(block), header.absent),
        memory_.reference());
  }

  // Returns the next frame, which names blocks that the server reads in shared memory; nullopt if
  // no block is ready. The server may still read the blocks for an earlier attempt, so they must
  // not change until the push is answered.
  std::optional<ClientPush::Frame> SharedFrame(const RemoteServer& server, SharedRuns& runs) const {
    const std::optional<SharedRuns::Run> run =
        runs.Next(is_ready_, options_.base_versions, is_alone_);
    if (!run.has_value()) return std::nullopt;
    const std::vector<BlockId>& owned = options_.block_map->owned_by(server.index());
    const std::vector<BlockRange>& blocks = options_.block_map->blocks();
    PushHeader header = GetHeader(server, blocks[owned[run->begin]]);
    if (IsEmpty(header, blocks[owned[run->begin]])) {
      return ClientPush::Frame{Empty(header), runs.done()};
    }
    header.shared_blocks = static_cast<uint32_t>(run->end - run->begin);
    header.shared_buffer = static_cast<uint32_t>(shared_buffer_);
    for (size_t i = run->begin; i < run->end; ++i) {
      if (blocks[owned[i]].averaged) ShareAveraged(blocks[owned[i]]);
    }
    return ClientPush::Frame{Empty(header), runs.done()};
  }

  // Copies averaged values to the buffer that holds the gradients, at their offset in the flat
  // vector.
  void ShareAveraged(const BlockRange& block) const {
    const absl::Span<const float> elements = Elements(block);
    float* const there = options_.segment->buffer(shared_buffer_).data() + block.offset;
    if (there != elements.data()) std::copy(elements.begin(), elements.end(), there);
  }

  absl::Span<const float> Elements(const BlockRange& block) const {
    return block.averaged ? options_.averaged.subspan(block.offset - averaged_from_, block.length)
                          : options_.trained.subspan(block.offset, block.length);
  }

  // Adds the sent gradient of `block` back to the residual, because the server refused the block
  // and will not apply it later.
  void TakeBack(BlockId block) {
    if (options_.encoded != nullptr) options_.encoded->TakeBack(block);
    if (options_.error_feedback != nullptr) {
      options_.error_feedback->TakeBack(block, options_.step);
    }
  }

  // `server_incarnation` is the incarnation that answered the push. A concurrent pull may have
  // greeted a later incarnation.
  absl::Status CountVerdicts(const RemoteServer& server, uint64_t server_incarnation,
                             const PushReply& reply) {
    // Pushes of initial values are answered without verdicts.
    if (options_.step == 0) return absl::OkStatus();
    const size_t expected = options_.block_map->owned_by(server.index()).size();
    if (static_cast<size_t>(reply.block_size()) != expected) {
      return absl::InternalError(absl::StrCat("a push was answered with ", reply.block_size(),
                                              " verdicts; expected ", expected));
    }
    PushResult result = result_;
    std::vector<BlockId> applied;
    for (const BlockVerdict& verdict : reply.block()) {
      const std::optional<BlockId> block = options_.block_map->Find(verdict.block());
      if (!block.has_value() || options_.block_map->blocks()[*block].server != server.index()) {
        return absl::InternalError(absl::StrCat("a push was answered for block ", verdict.block(),
                                                ", which was not sent to that server"));
      }
      if (!Count(verdict.verdict(), &result.verdicts)) {
        return absl::InternalError(
            absl::StrCat("block ", verdict.block(), " has no known verdict"));
      }
      if (verdict.verdict() == REJECTED_STALE || verdict.verdict() == LATE) TakeBack(*block);
      if (verdict.verdict() == ACCEPTED || verdict.verdict() == SCALED) applied.push_back(*block);
      if (verdict.duplicate()) {
        result.verdicts.set_duplicates(result.verdicts.duplicates() + 1);
      }
      result.max_lag = std::max(result.max_lag, verdict.lag());
    }
    for (const BlockId block : applied) {
      options_.accounting->Applied(block, options_.step,
                                   server_incarnation != server.server_incarnation());
    }
    result_ = result;
    return absl::OkStatus();
  }

  const Options options_;
  // Index of the segment's buffer with the gradients; -1 if they are outside the segment.
  const int shared_buffer_;
  const int64_t averaged_from_;
  std::optional<double> weight_;  // nullopt: Options::weight
  // By block.
  std::vector<bool> is_reported_;  // the caller reported the block as ready
  std::vector<bool> is_ready_;     // the block may be sent
  std::vector<bool> is_withheld_;  // the block is not finite
  std::vector<bool> is_alone_;     // the block needs a separate frame
  // Elements without a gradient, for the blocks that contain such elements.
  absl::flat_hash_map<BlockId, ElementRuns> absent_;
  // Ready blocks that are not finite or have only absent elements. They wait here until the first
  // finite block is ready.
  std::vector<BlockId> held_;
  size_t withheld_ = 0;
  // Initially true for a part of a model: other parts of the step may already be sent, so this part
  // cannot skip the step and withholds single blocks.
  bool some_finite_ = !options_.block_map->is_whole();
  // By server: the ready blocks in order, which is the frame order in each attempt.
  std::vector<std::vector<BlockId>> ready_;
  // By server.
  std::vector<bool> is_tried_;  // an attempt was made
  std::vector<bool> shares_;    // the first attempt used shared memory
  BorrowedMemory memory_;
  PushResult result_;
};

PendingPush::PendingPush(Options options)
    : loop_(options.loop), round_(std::make_shared<Round>(std::move(options))) {
  // No thread must wake now, because the first call can begin only when a block is ready.
  loop_->Begin(round_, CallLoop::Urgency::kSoon);
}

PendingPush::~PendingPush() {
  if (finished_) return;
  loop_->Post([round = round_] { round->Fail(absl::CancelledError("the push was given up")); },
              CallLoop::Urgency::kSoon);
  Await().IgnoreError();
}

void PendingPush::SetWeight(double weight) {
  loop_->Post([round = round_, weight] { round->SetWeight(weight); }, CallLoop::Urgency::kSoon);
}

void PendingPush::BlockReady(BlockId block) {
  loop_->Post([round = round_, block] { round->AddReady(block); });
}

void PendingPush::AllReady(CallLoop::Urgency urgency, ElementRuns absent) {
  loop_->Post([round = round_, absent = std::move(absent)] { round->AddAll(absent); }, urgency);
}

absl::Status PendingPush::Await() {
  absl::Status status = loop_->Await(*round_);
  if (!round_->TryRelease()) {
    // gRPC releases references only while a thread polls.
    loop_->Post([] {});
    round_->AwaitRelease();
  }
  return status;
}

absl::StatusOr<PushResult> PendingPush::Finish() {
  const absl::Status status = Await();
  finished_ = true;
  if (!status.ok()) return status;
  return round_->result();
}

}  // namespace torchps
