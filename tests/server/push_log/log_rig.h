#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/faulty_file_system.h"
#include "torchps/common/hash.h"
#include "torchps/server/push_log/log_reader.h"
#include "torchps/server/push_log/push_log.h"

namespace torchps {

// Opens a push log on a faulty disk, and keeps the sequences and payloads of the records read.
struct LogRig {
  static constexpr char kDirectory[] = "/ps/log-0-of-2";
  static LogIdentity Identity() { return {/*job_id=*/77, 0, 2, /*blocks=*/8}; }

  FaultyFileSystem files;
  std::vector<uint64_t> read;  // sequences from the last Open or Read
  std::vector<std::string> payloads;
  std::string directory = kDirectory;
  uint64_t salts = 20261125;                                       // seed for the salts
  LogCopier* copier = nullptr;                                     // like PushLog::Options
  int64_t reserve_bytes = 0;                                       // like PushLog::Options
  int64_t checkpoint_bytes = std::numeric_limits<int64_t>::max();  // like PushLog::Options

  absl::StatusOr<LogEnd> Read() {
    read.clear();
    payloads.clear();
    return ReadPushLog(files, directory, Identity(),
                       [&](const LogRecord& record, const FramePayload& payload) {
                         read.push_back(record.sequence);
                         std::string bytes(payload.bytes(), '\0');
                         payload.CopyBytesTo(reinterpret_cast<uint8_t*>(bytes.data()));
                         payloads.push_back(bytes);
                         return absl::OkStatus();
                       });
  }

  absl::StatusOr<std::unique_ptr<PushLog>> Open(int64_t buffer_bytes = 1 << 20) {
    const absl::StatusOr<LogEnd> end = Read();
    if (!end.ok()) return end.status();
    PushLog::Options options;
    options.directory = directory;
    options.identity = Identity();
    options.buffer_bytes = buffer_bytes;
    options.copier = copier;
    options.reserve_bytes = reserve_bytes;
    options.checkpoint_bytes = checkpoint_bytes;
    options.draw_salt = [this] { return SplitMix64(salts); };
    return PushLog::Open(&files, options, *end);
  }

  // Appends a record with the given payload.
  static void Append(PushLog* log, absl::string_view payload) {
    LogRecord record;
    record.kind = LogKind::kGradient;
    log->Append(record, FramePayload({grpc::Slice(std::string(payload))}));
  }
};

}  // namespace torchps
