#include "torchps/transport/frame_codec.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "torchps/common/check.h"

namespace torchps {
namespace {

// Protobuf wire types. The group markers (3 and 4) appear only in old messages and are rejected.
constexpr uint32_t kVarint = 0;
constexpr uint32_t kFixed64 = 1;
constexpr uint32_t kBytes = 2;
constexpr uint32_t kFixed32 = 5;

constexpr uint32_t kPayloadField = 15;

// Maximum length in bytes of any varint, and of a varint that Protobuf accepts as a tag or a
// length.
constexpr size_t kMaxVarintBytes = 10;
constexpr size_t kMaxTagBytes = 5;

// ---------------------------------------------------------------------------------- writing

// Writes the fields in front of a payload to a buffer on the stack. Omits zero fields, as Protobuf
// does.
class HeaderWriter {
 public:
  // The caller must sign-extend negative numbers, as Protobuf does.
  void Add(uint32_t field, uint64_t value) {
    if (value == 0) return;
    AddVarint(field << 3 | kVarint);
    AddVarint(value);
  }

  void AddPayloadLength(size_t bytes) {
    if (bytes == 0) return;
    AddVarint(kPayloadField << 3 | kBytes);
    AddVarint(bytes);
  }

  grpc::Slice Slice() const { return grpc::Slice(bytes_, size_); }

 private:
  void AddVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_[size_++] = static_cast<uint8_t>(value | 0x80);
    bytes_[size_++] = static_cast<uint8_t>(value);
  }

  // Large enough for seventeen fields with a two-byte tag and a varint of maximum length, plus the
  // payload's tag and length.
  uint8_t bytes_[17 * (2 + kMaxVarintBytes) + 1 + kMaxTagBytes];
  size_t size_ = 0;
};

uint64_t SignExtend(int32_t value) { return static_cast<uint64_t>(int64_t{value}); }

// The value of PushFrame.loss_weight for a weight of 1.
constexpr double kUnitsOfLossWeight = 4294967296.0;

HeaderWriter WritePushHeader(const PushHeader& header) {
  HeaderWriter writer;
  writer.Add(1, SignExtend(header.slot));
  writer.Add(2, header.incarnation);
  writer.Add(3, static_cast<uint64_t>(header.step));
  writer.Add(4, header.block);
  writer.Add(5, static_cast<uint64_t>(header.base_version));
  writer.Add(6, header.server_incarnation);
  writer.Add(7, header.weight);
  writer.Add(8, header.block_count);
  writer.Add(9, header.encoding);
  writer.Add(10, header.withheld);
  writer.Add(11, header.shared_blocks);
  writer.Add(12, header.absent.size());
  writer.Add(13, header.progress);
  writer.Add(14, header.part);
  writer.Add(16, header.shared_buffer);
  writer.Add(17, header.share);
  writer.Add(18, header.loss_weight);
  return writer;
}

HeaderWriter WritePullHeader(const PullHeader& header) {
  HeaderWriter writer;
  writer.Add(1, header.block);
  writer.Add(2, static_cast<uint64_t>(header.version));
  writer.Add(3, header.block_count);
  writer.Add(4, static_cast<uint64_t>(header.min_clock));
  writer.Add(5, header.parked_us);
  writer.Add(6, header.encoding);
  writer.Add(7, header.unchanged);
  writer.Add(8, header.shared);
  return writer;
}

template <typename Element>
grpc::Slice Borrow(absl::Span<const Element> payload, std::shared_ptr<const void> keep_alive) {
  // An empty payload borrows no memory, so the slice does not need a release callback.
  if (payload.empty()) return grpc::Slice();
  return grpc::Slice(
      const_cast<Element*>(payload.data()), payload.size() * sizeof(Element),
      [](void* reference) { delete static_cast<std::shared_ptr<const void>*>(reference); },
      new std::shared_ptr<const void>(std::move(keep_alive)));
}

grpc::ByteBuffer Assemble(HeaderWriter header, grpc::Slice payload) {
  TPS_CHECK(payload.size() <= kMaxFramePayloadBytes, "a payload is within its limit");
  header.AddPayloadLength(payload.size());
  const grpc::Slice slices[] = {header.Slice(), std::move(payload)};
  return grpc::ByteBuffer(slices, slices[1].size() > 0 ? 2 : 1);
}

grpc::ByteBuffer AssemblePush(const PushHeader& header, grpc::Slice elements) {
  HeaderWriter writer = WritePushHeader(header);
  if (header.absent.empty()) return Assemble(writer, std::move(elements));
  TPS_CHECK(header.absent.size() <= kMaxAbsentRuns,
            "a table of absent elements is within its limit");
  TPS_CHECK(elements.size() <= kMaxFramePayloadBytes, "a payload is within its limit");
  const size_t table_bytes = AbsentTableBytes(header.absent.size());
  writer.AddPayloadLength(table_bytes + elements.size());
  grpc::Slice table(table_bytes);
  // Writing is safe because the new slice is not shared. grpc::Slice lacks a mutable accessor.
  WriteAbsentTable(header.absent, const_cast<uint8_t*>(table.begin()));
  const grpc::Slice slices[] = {writer.Slice(), std::move(table), std::move(elements)};
  return grpc::ByteBuffer(slices, slices[2].size() > 0 ? 3 : 2);
}

// ---------------------------------------------------------------------------------- reading

// Reads the header of a frame from contiguous memory.
class HeaderReader {
 public:
  HeaderReader(const uint8_t* bytes, size_t size) : bytes_(bytes), size_(size) {}

  size_t position() const { return position_; }
  size_t left() const { return size_ - position_; }

  // Returns false if the bytes end early, or if the varint exceeds `max_bytes` or 64 bits.
  bool ReadVarint(size_t max_bytes, uint64_t* value) {
    *value = 0;
    for (size_t i = 0; i < max_bytes && position_ < size_; ++i) {
      const uint8_t byte = bytes_[position_++];
      if (i == kMaxVarintBytes - 1 && byte > 1) return false;
      *value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
      if (byte < 0x80) return true;
    }
    return false;
  }

  // Reads a tag or a field length, at most 32 bits.
  bool ReadVarint32(uint64_t* value) {
    return ReadVarint(kMaxTagBytes, value) && *value <= std::numeric_limits<uint32_t>::max();
  }

  // Returns false and moves to the end if fewer than `bytes` bytes are left.
  bool Skip(uint64_t bytes) {
    const bool enough = bytes <= left();
    position_ += enough ? bytes : left();
    return enough;
  }

 private:
  const uint8_t* const bytes_;
  const size_t size_;
  size_t position_ = 0;
};

// Stores `value` in header field `number` and ignores unknown fields. Returns null, or the reason
// that the field cannot hold the value, as a clause that follows "which".
using StoreField = absl::FunctionRef<const char*(uint32_t number, uint64_t value)>;

constexpr char kNot32Bits[] = "does not fit 32 bits";

const char* Store(uint64_t value, uint64_t* field) {
  *field = value;
  return nullptr;
}
const char* Store(uint64_t value, int64_t* field) {
  *field = static_cast<int64_t>(value);
  return nullptr;
}
const char* Store(uint64_t value, uint32_t* field) {
  *field = static_cast<uint32_t>(value);
  return value == *field ? nullptr : kNot32Bits;
}
const char* Store(uint64_t value, int32_t* field) {
  *field = static_cast<int32_t>(value);
  return value == SignExtend(*field) ? nullptr : kNot32Bits;
}
const char* Store(uint64_t value, bool* field) {
  *field = value != 0;
  return nullptr;
}
// An unknown encoding cannot be decoded, so the frame is rejected.
const char* Store(uint64_t value, EncodingSpec::Kind* field) {
  if (value > EncodingSpec::Kind_MAX || !EncodingSpec::Kind_IsValid(static_cast<int>(value))) {
    return "is not a known encoding";
  }
  *field = static_cast<EncodingSpec::Kind>(value);
  return nullptr;
}

template <typename... Parts>
absl::Status Malformed(absl::string_view frame_name, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("malformed ", frame_name, ": ", parts...));
}

// Reads the table of `runs` runs at byte `begin` of the slices. REQUIRES: the slices contain the
// whole table.
absl::StatusOr<ElementRuns> ReadTableAt(const std::vector<grpc::Slice>& slices, size_t begin,
                                        uint32_t runs) {
  std::vector<uint8_t> bytes(AbsentTableBytes(runs));
  size_t to_skip = begin;
  size_t copied = 0;
  for (const grpc::Slice& slice : slices) {
    const size_t skipped = std::min(to_skip, slice.size());
    to_skip -= skipped;
    const size_t count = std::min(slice.size() - skipped, bytes.size() - copied);
    if (count > 0) std::memcpy(bytes.data() + copied, slice.begin() + skipped, count);
    copied += count;
  }
  return ReadAbsentTable(bytes);
}

// Parses a frame, which messages call `name`. `store` receives each integer field. `encoding` and
// `absent_runs` refer to two fields that `store` sets; they are read when the payload is reached.
absl::Status ParseFrame(const grpc::ByteBuffer& frame, absl::string_view name, StoreField store,
                        const EncodingSpec::Kind& encoding, const uint32_t& absent_runs,
                        ElementRuns* absent, FramePayload* payload) {
  std::vector<grpc::Slice> slices;
  if (!frame.Dump(&slices).ok()) return Malformed(name, "its bytes cannot be read");

  size_t frame_bytes = 0;
  size_t copied = 0;
  uint8_t beginning[kMaxFrameHeaderBytes];
  for (const grpc::Slice& slice : slices) {
    const size_t count = std::min(slice.size(), kMaxFrameHeaderBytes - copied);
    if (count > 0) std::memcpy(beginning + copied, slice.begin(), count);
    copied += count;
    frame_bytes += slice.size();
  }
  HeaderReader reader(beginning, copied);
  // Returns the error for a header that cannot be read. If the header ends beyond `beginning`, its
  // size is the fault.
  const auto broken = [&](const auto&... what) {
    if (reader.left() == 0 && copied < frame_bytes) {
      return Malformed(name, "its header is longer than ", kMaxFrameHeaderBytes, " bytes");
    }
    return Malformed(name, what...);
  };

  while (reader.left() > 0) {
    const size_t tag_position = reader.position();
    uint64_t tag;
    if (!reader.ReadVarint32(&tag) || tag >> 3 == 0) {
      return broken("there is no field tag at byte ", tag_position);
    }
    const uint32_t number = static_cast<uint32_t>(tag >> 3);
    const uint32_t wire_type = tag & 7;
    uint64_t value = 0;
    switch (wire_type) {
      case kVarint:
        if (!reader.ReadVarint(kMaxVarintBytes, &value)) {
          return broken("field ", number, " does not hold an integer of at most 64 bits");
        }
        if (const char* const misfit = store(number, value); misfit != nullptr) {
          return Malformed(name, "field ", number, " holds ", value, ", which ", misfit);
        }
        break;
      case kFixed64:
      case kFixed32:
        if (!reader.Skip(wire_type == kFixed64 ? 8 : 4)) {
          return broken("field ", number, " extends beyond the end of the frame");
        }
        break;
      case kBytes: {
        if (!reader.ReadVarint32(&value)) {
          return broken("field ", number, " has no valid length");
        }
        if (number != kPayloadField) {
          if (!reader.Skip(value)) {
            return broken("field ", number, " extends beyond the end of the frame");
          }
          break;
        }
        size_t payload_begin = reader.position();
        const size_t table_bytes = AbsentTableBytes(absent_runs);
        if (value > kMaxFramePayloadBytes + table_bytes) {
          return Malformed(name, "its payload has ", value, " bytes, the limit is ",
                           kMaxFramePayloadBytes + table_bytes);
        }
        if (value != frame_bytes - payload_begin) {
          return Malformed(name, "its payload, the last field, should have ", value,
                           " bytes, but the frame has ", frame_bytes - payload_begin, " left");
        }
        if (absent_runs > 0) {
          if (value < table_bytes) {
            return Malformed(name, "its payload has ", value, " bytes and announces a table of ",
                             absent_runs, " runs of absent elements, which take ", table_bytes);
          }
          absl::StatusOr<ElementRuns> table = ReadTableAt(slices, payload_begin, absent_runs);
          if (!table.ok()) return Malformed(name, table.status().message());
          *absent = *std::move(table);
          payload_begin += table_bytes;
        }
        *payload = FramePayload(std::move(slices), payload_begin, encoding);
        return absl::OkStatus();
      }
      default:
        return Malformed(name, "field ", number, " has wire type ", wire_type,
                         ", which frames do not use");
    }
  }
  if (copied < frame_bytes) return broken();
  if (absent_runs > 0) {
    return Malformed(name, "it announces a table of ", absent_runs,
                     " runs of absent elements and has no payload");
  }
  *payload = FramePayload();
  return absl::OkStatus();
}

}  // namespace

grpc::ByteBuffer EncodePushFrame(const PushHeader& header, absl::Span<const float> payload,
                                 std::shared_ptr<const void> keep_alive) {
  return AssemblePush(header, Borrow(payload, std::move(keep_alive)));
}

grpc::ByteBuffer EncodePushFrame(const PushHeader& header, absl::Span<const uint8_t> payload,
                                 std::shared_ptr<const void> keep_alive) {
  return AssemblePush(header, Borrow(payload, std::move(keep_alive)));
}

grpc::ByteBuffer EncodePullFrame(const PullHeader& header, absl::Span<const float> payload,
                                 std::shared_ptr<const void> keep_alive) {
  return Assemble(WritePullHeader(header), Borrow(payload, std::move(keep_alive)));
}

double PushHeader::mean_weight() const {
  return loss_weight == 0 ? weight : static_cast<double>(loss_weight) / kUnitsOfLossWeight;
}

void PushHeader::SetLossWeight(double value) {
  constexpr double kMax = 9e18;
  loss_weight = static_cast<uint64_t>(std::clamp(value * kUnitsOfLossWeight, 1.0, kMax));
}

grpc::ByteBuffer EncodePullFrame(const PullHeader& header, grpc::Slice payload) {
  return Assemble(WritePullHeader(header), std::move(payload));
}

absl::Status ParsePushFrame(const grpc::ByteBuffer& frame, PushHeader* header,
                            FramePayload* payload) {
  *header = PushHeader();
  uint32_t absent_runs = 0;
  return ParseFrame(
      frame, "push frame",
      [header, &absent_runs](uint32_t number, uint64_t value) -> const char* {
        switch (number) {
          case 1:
            return Store(value, &header->slot);
          case 2:
            return Store(value, &header->incarnation);
          case 3:
            return Store(value, &header->step);
          case 4:
            return Store(value, &header->block);
          case 5:
            return Store(value, &header->base_version);
          case 6:
            return Store(value, &header->server_incarnation);
          case 7:
            return Store(value, &header->weight);
          case 8:
            return Store(value, &header->block_count);
          case 9:
            return Store(value, &header->encoding);
          case 10:
            return Store(value, &header->withheld);
          case 11:
            return Store(value, &header->shared_blocks);
          case 12:
            if (value > kMaxAbsentRuns) return "exceeds the limit on runs of absent elements";
            return Store(value, &absent_runs);
          case 13:
            return Store(value, &header->progress);
          case 14:
            return Store(value, &header->part);
          case 16:
            return Store(value, &header->shared_buffer);
          case 17:
            return Store(value, &header->share);
          case 18:
            return Store(value, &header->loss_weight);
          default:
            return nullptr;
        }
      },
      header->encoding, absent_runs, &header->absent, payload);
}

absl::Status ParsePullFrame(const grpc::ByteBuffer& frame, PullHeader* header,
                            FramePayload* payload) {
  *header = PullHeader();
  const uint32_t absent_runs = 0;
  ElementRuns absent;
  return ParseFrame(
      frame, "pull frame",
      [header](uint32_t number, uint64_t value) -> const char* {
        switch (number) {
          case 1:
            return Store(value, &header->block);
          case 2:
            return Store(value, &header->version);
          case 3:
            return Store(value, &header->block_count);
          case 4:
            return Store(value, &header->min_clock);
          case 5:
            return Store(value, &header->parked_us);
          case 6:
            return Store(value, &header->encoding);
          case 7:
            return Store(value, &header->unchanged);
          case 8:
            return Store(value, &header->shared);
          default:
            return nullptr;
        }
      },
      header->encoding, absent_runs, &absent, payload);
}

}  // namespace torchps
