#include "torchps/server/push_log/job_log.h"

#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "torchps/server/push_log/log_reader.h"
#include "torchps/server/push_log/replay.h"

namespace torchps {
namespace {

LogIdentity GetIdentity(const JobShare& share) {
  LogIdentity identity;
  identity.job_id = share.job_id;
  identity.server_index = static_cast<uint32_t>(share.server);
  identity.server_count = static_cast<uint32_t>(share.map.servers());
  identity.blocks = static_cast<uint32_t>(share.map.blocks().size());
  return identity;
}

LogKind GetKind(BlockRecord::Kind kind) {
  switch (kind) {
    case BlockRecord::Kind::kInitial:
      return LogKind::kInitialValues;
    case BlockRecord::Kind::kGradient:
      return LogKind::kGradient;
    case BlockRecord::Kind::kPassed:
      return LogKind::kPassedOver;
    case BlockRecord::Kind::kLedger:
      break;
  }
  return LogKind::kLedger;
}

Version VersionBefore(const BlockRecord& record, Version after) {
  switch (record.kind) {
    case BlockRecord::Kind::kGradient:
      return after - 1;
    case BlockRecord::Kind::kPassed:
      return record.version_before;
    default:
      return after;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobLog>> JobLog::Open(const Options& options, const JobShare& share,
                                                     ParameterStore* store) {
  auto journal = absl::WrapUnique(new JobLog());
  const LogIdentity identity = GetIdentity(share);
  uint64_t last_sequence = 0;
  bool fits = true;  // the records fit the restored blocks
  const auto replay = [&](const LogRecord& record, const FramePayload& payload) {
    const auto change = [&](Block* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mutex) {
      const absl::StatusOr<bool> changed = ReplayLogRecord(record, payload, share.updater, block);
      if (changed.ok() && *changed) ++journal->replayed_;
      return changed.status();
    };
    const absl::Status replayed = store->snapshot().Replay(record.block, change);
    fits = replayed.ok();
    if (fits) last_sequence = record.sequence;
    return replayed;
  };
  absl::StatusOr<LogEnd> end = ReadPushLog(*options.files, options.directory, identity, replay);
  const bool is_damaged = absl::IsDataLoss(end.status()) || (end.ok() && end->cut_bytes > 0);
  if (is_damaged && fits && options.replace != nullptr) {
    const absl::StatusOr<bool> replaced = options.replace(identity, last_sequence, end);
    if (!replaced.ok()) return replaced.status();
    // Records that were replayed already have no effect.
    if (*replaced) end = ReadPushLog(*options.files, options.directory, identity, replay);
  }
  if (!end.ok()) return end.status();
  journal->existed_ = !end->segments.empty();
  if (journal->existed_ && !options.has_checkpoint && end->segments.front().number != 1) {
    return absl::DataLossError(absl::StrCat(
        "the push log in ", options.directory, " begins with segment ",
        end->segments.front().number,
        ", and there is no checkpoint of the changes before it; restore the checkpoint to "
        "the same directory"));
  }
  if (end->cut_bytes > 0) {
    options.log(absl::StrCat("the push log in ", options.directory, " ends with ", end->cut_bytes,
                             " bytes of a write that a crash interrupted; no push in them was "
                             "acknowledged, and they are ignored"));
  }
  PushLog::Options log;
  log.directory = options.directory;
  log.identity = identity;
  log.buffer_bytes = options.buffer_bytes;
  log.reserve_bytes = options.reserve_bytes;
  log.checkpoint_bytes = options.checkpoint_bytes;
  log.draw_salt = options.draw_salt;
  log.copier = options.copier;
  absl::StatusOr<std::unique_ptr<PushLog>> opened =
      PushLog::Open(options.files, std::move(log), *end);
  if (!opened.ok()) return opened.status();
  journal->log_ = *std::move(opened);
  journal->copier_ = options.copier;
  if (options.has_thread) {
    journal->thread_ = std::make_unique<LogThread>(journal->log_.get(), options.clock, options.log);
  }
  return journal;
}

void JobLog::Record(const Block& block, const BlockRecord& record) {
  LogRecord logged;
  logged.kind = GetKind(record.kind);
  logged.block = block.range.id;
  logged.base_version = VersionBefore(record, block.version);
  logged.version = block.version;
  logged.terms = record.terms;
  logged.absent.assign(record.absent.begin(), record.absent.end());
  for (const SlotId slot : record.slots) logged.ledger.push_back({slot, block.ledger[slot]});
  if (record.payload != nullptr) {
    log_->Append(std::move(logged), *record.payload);
    return;
  }
  std::vector<grpc::Slice> slices;
  if (!record.elements.empty()) {
    slices.emplace_back(record.elements.data(), record.elements.size() * sizeof(float),
                        grpc::Slice::STATIC_SLICE);
  }
  log_->Append(std::move(logged), FramePayload(std::move(slices)));
}

void JobLog::WhenDurable(std::function<void()> continuation) {
  // The log stores the continuation only if it returns a nonzero id.
  if (log_->WhenDurable(continuation) == 0) continuation();
}

BlockJournal::RoomId JobLog::WhenRoom(std::function<void()> continuation) {
  return log_->WhenRoom(std::move(continuation));
}

void JobLog::Stop() {
  thread_ = nullptr;
  if (copier_ != nullptr) copier_->Stop();
}

void JobLog::CancelRoom(RoomId id) { log_->CancelRoom(id); }

void JobLog::Describe(DurabilityStatus* status) const {
  const PushLog::Figures figures = log_->figures();
  status->set_replayed(replayed_);
  status->set_log_records(figures.records);
  status->set_log_bytes(figures.bytes);
  status->set_log_syncs(figures.syncs);
  if (!figures.trouble.empty()) status->set_trouble(figures.trouble);
}

}  // namespace torchps
