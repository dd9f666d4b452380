#include "torchps/server/push_log/log_segment.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "torchps/server/push_log/log_record.h"
#include "torchps/storage/crc32c.h"

namespace torchps {
namespace {

constexpr char kMagic[] = "TORCHPSL";
constexpr uint32_t kFormatVersion = 5;
constexpr size_t kChecksumAt = 68;
// Checksum position and header size before version 5.
constexpr size_t kOldChecksumAt = 60;
constexpr size_t kOldHeaderBytes = 64;
constexpr size_t kDigits = 20;
constexpr absl::string_view kSuffix = ".log";

uint32_t Checksum(const uint8_t* header, size_t end) {
  return Crc32c(0, absl::string_view(reinterpret_cast<const char*>(header), end));
}

bool HasMagic(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= 8 && std::memcmp(bytes.data(), kMagic, 8) == 0;
}

// Returns the format version of an older program's segment; 0 otherwise.
uint32_t OldVersion(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kOldHeaderBytes || !HasMagic(bytes)) return 0;
  const uint8_t* const at = bytes.data();
  const uint32_t version = GetLittleEndian<uint32_t>(at + 8);
  const uint32_t checksum = GetLittleEndian<uint32_t>(at + kOldChecksumAt);
  return version < kFormatVersion && checksum == Checksum(at, kOldChecksumAt) ? version : 0;
}

absl::Status OtherVersion(uint32_t version) {
  return absl::FailedPreconditionError(absl::StrCat("the segment has format version ", version,
                                                    "; this program reads version ", kFormatVersion,
                                                    ": use the torchps version that wrote it"));
}

}  // namespace

std::array<uint8_t, kLogSegmentHeaderBytes> EncodeLogSegmentHeader(const LogSegmentHeader& header) {
  std::array<uint8_t, kLogSegmentHeaderBytes> bytes{};
  uint8_t* const at = bytes.data();
  std::memcpy(at, kMagic, 8);
  PutLittleEndian(at + 8, kFormatVersion);
  PutLittleEndian(at + 12, header.identity.server_index);
  PutLittleEndian(at + 16, header.identity.server_count);
  PutLittleEndian(at + 20, header.identity.blocks);
  PutLittleEndian(at + 24, header.identity.job_id);
  PutLittleEndian(at + 32, header.number);
  PutLittleEndian(at + 40, header.previous_bytes);
  PutLittleEndian(at + 48, header.first_sequence);
  PutLittleEndian(at + 56, header.salt);
  PutLittleEndian(at + kChecksumAt, Checksum(at, kChecksumAt));
  return bytes;
}

absl::StatusOr<LogSegmentHeader> ReadLogSegmentHeader(absl::Span<const uint8_t> bytes) {
  if (const uint32_t version = OldVersion(bytes); version > 0) return OtherVersion(version);
  if (bytes.size() < kLogSegmentHeaderBytes) {
    return absl::DataLossError(absl::StrCat("a segment's header takes ", kLogSegmentHeaderBytes,
                                            " bytes; there are ", bytes.size()));
  }
  const uint8_t* const at = bytes.data();
  if (!HasMagic(bytes)) return absl::DataLossError("this is not a push log segment");
  if (GetLittleEndian<uint32_t>(at + kChecksumAt) != Checksum(at, kChecksumAt)) {
    return absl::DataLossError("the segment's header fails its checksum");
  }
  const uint32_t version = GetLittleEndian<uint32_t>(at + 8);
  if (version != kFormatVersion) return OtherVersion(version);
  LogSegmentHeader header;
  header.identity.server_index = GetLittleEndian<uint32_t>(at + 12);
  header.identity.server_count = GetLittleEndian<uint32_t>(at + 16);
  header.identity.blocks = GetLittleEndian<uint32_t>(at + 20);
  header.identity.job_id = GetLittleEndian<uint64_t>(at + 24);
  header.number = GetLittleEndian<uint64_t>(at + 32);
  header.previous_bytes = GetLittleEndian<int64_t>(at + 40);
  header.first_sequence = GetLittleEndian<uint64_t>(at + 48);
  header.salt = GetLittleEndian<uint64_t>(at + 56);
  return header;
}

std::string LogSegmentName(uint64_t number) { return absl::StrFormat("%020u%s", number, kSuffix); }

std::optional<uint64_t> LogSegmentNumber(absl::string_view name) {
  uint64_t number = 0;
  if (!absl::ConsumeSuffix(&name, kSuffix) || name.size() != kDigits ||
      !absl::SimpleAtoi(name, &number) || number == 0 ||
      LogSegmentName(number).substr(0, kDigits) != name) {
    return std::nullopt;
  }
  return number;
}

}  // namespace torchps
