#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/block_image.h"
#include "common/element_runs.h"
#include "common/ids.h"
#include "proto/job.pb.h"
#include "server/store/gradient_terms.h"
#include "wire/frame_codec.h"
#include "wire/frame_payload.h"

// The records of the push log as bytes (docs/storage.md, "The push log"): a header of fixed
// length with a checksum of its own, so that the lengths in it can be believed, then rows of the
// ledger, the table of absent elements and the payload under a second one. A header is sealed
// with the salt of its segment, which no worker knows: nothing in a payload passes for a header.
// All functions are thread-safe.

namespace torchps {

// What a change of a block was.
enum class LogKind : uint8_t {
  kInitialValues = 1,  // the payload took the place of the values; the version stays 0
  kGradient = 2,       // the optimizer, or the running average, took the payload: version + 1
  kPassedOver = 3,     // rounds without a gradient: a higher version
  kLedger = 4,         // the ledger alone: a push was refused, was late or was withheld
};

// A slot's ledger entry as it was after the change.
struct LogLedgerRow {
  SlotId slot = 0;
  LedgerEntry entry;

  friend bool operator==(const LogLedgerRow& a, const LogLedgerRow& b) {
    return a.slot == b.slot && a.entry == b.entry;
  }
};

// One change of one block, without its payload.
struct LogRecord {
  LogKind kind = LogKind::kLedger;
  // Rises by one from record to record, over all segments and lives of the log.
  uint64_t sequence = 0;
  // When this record was written, all records up to this one were on the disk.
  uint64_t durable_sequence = 0;
  BlockId block = 0;
  Version base_version = 0;  // of the block, before the change
  Version version = 0;       // and after it
  GradientTerms terms;
  EncodingSpec::Kind encoding = EncodingSpec::FLOAT32;  // of the payload
  std::vector<LogLedgerRow> ledger;
  // Of the block's elements, those that the gradient had nothing for.
  ElementRuns absent;
};

inline constexpr size_t kLogRecordHeaderBytes = 96;
inline constexpr size_t kLogLedgerRowBytes = 56;

// As many as the largest block has where every other element is absent. A frame has fewer
// (kMaxAbsentRuns), but a round of SYNC lacks what all of its gradients lack, which may be cut
// finer than any of them.
inline constexpr size_t kMaxLoggedAbsentRuns = kMaxFramePayloadBytes / sizeof(float) / 2;

// The bytes of a record with so many rows of the ledger, runs of absent elements and such a
// payload. REQUIRES: rows <= kMaxSlots, absent_runs <= kMaxLoggedAbsentRuns, payload_bytes <=
// kMaxFramePayloadBytes.
size_t LogRecordBytes(size_t rows, size_t absent_runs, size_t payload_bytes);

// Writes a record to `destination`, LogRecordBytes of it, without its mark, its checksums and
// durable_sequence: these come with SealLogRecord. `record.encoding` is not looked at, the
// payload's own is taken. REQUIRES: as LogRecordBytes.
void WriteLogRecord(const LogRecord& record, const FramePayload& payload, uint8_t* destination);

// Completes what WriteLogRecord has written at `record`, for a segment with this salt; returns its
// length. May be done again, for another segment.
size_t SealLogRecord(uint64_t salt, uint64_t durable_sequence, uint8_t* record);

// The lengths that a header announces.
struct LogRecordHeader {
  size_t rows = 0;
  size_t absent_runs = 0;
  size_t payload_bytes = 0;
  size_t bytes = 0;  // of the whole record
  uint64_t sequence = 0;
  uint64_t durable_sequence = 0;
};

// DATA_LOSS says in words what is wrong: too short, no record of a segment with this salt, a
// checksum, an impossible length.
absl::StatusOr<LogRecordHeader> ReadLogRecordHeader(uint64_t salt, absl::Span<const uint8_t> bytes);

// A whole record. `*payload` refers to the bytes, which must live as long as it. DATA_LOSS as
// above. What payload and absent elements are to the block (length, indices) is for
// FramePayload::Check and CheckRuns.
absl::Status ReadLogRecord(uint64_t salt, absl::Span<const uint8_t> bytes, LogRecord* record,
                           FramePayload* payload);

}  // namespace torchps
