#include "torchps/checkpoint/manifest.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/storage/crc32c.h"
#include "torchps/transport/layout_codec.h"

namespace torchps {
namespace {

namespace json = google::protobuf::util;

// The file contains kBegin, the checksum in 8 hexadecimal digits, kMiddle, the manifest and kEnd.
// The whole file is valid JSON. Readers accept only this exact text, so they detect any changed
// bit.
constexpr absl::string_view kBegin = "{\n\"crc32c\": \"";
constexpr absl::string_view kMiddle = "\",\n\"manifest\": ";
constexpr absl::string_view kEnd = "}\n";
constexpr size_t kChecksumDigits = 8;

absl::Status NoManifest(absl::string_view reason) {
  return absl::DataLossError(absl::StrCat("this is not a manifest: ", reason));
}

absl::Status CheckManifest(const Manifest& manifest) {
  if (manifest.checkpoint() == 0) return NoManifest("its checkpoint number is 0");
  if (manifest.shard_size() != manifest.server_count()) {
    return NoManifest(absl::StrCat("it lists ", manifest.shard_size(), " shards of ",
                                   manifest.server_count(), " servers"));
  }
  for (int i = 0; i < manifest.shard_size(); ++i) {
    const std::string name = CheckpointDirectory::ShardName(i, manifest.server_count());
    if (manifest.shard(i).server_index() != i || manifest.shard(i).file() != name) {
      return NoManifest(absl::StrCat("shard ", i, " is '", manifest.shard(i).file(), "' of server ",
                                     manifest.shard(i).server_index(), "; expected '", name, "'"));
    }
  }
  // Earlier versions of torchps wrote preprocessing as a map. The JSON parser reads a map as one
  // entry with unknown fields.
  for (const PreprocessingEntry& entry : manifest.job().data().preprocessing()) {
    if (entry.key().empty()) return NoManifest("its data.preprocessing has an entry without a key");
  }
  return GetBlocks(manifest).status();
}

}  // namespace

absl::StatusOr<std::string> EncodeManifest(Manifest manifest) {
  manifest.set_format_version(kCheckpointFormatVersion);
  if (absl::Status status = CheckManifest(manifest); !status.ok()) {
    return absl::InvalidArgumentError(status.message());
  }
  json::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (const auto status = json::MessageToJsonString(manifest, &text, options); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the manifest cannot be written as JSON: ", status.message().ToString()));
  }
  return absl::StrCat(kBegin, absl::StrFormat("%08x", Crc32c(0, text)), kMiddle, text, kEnd);
}

absl::StatusOr<Manifest> DecodeManifest(absl::string_view text) {
  const size_t head = kBegin.size() + kChecksumDigits + kMiddle.size();
  if (text.size() < head + kEnd.size() || !absl::StartsWith(text, kBegin) ||
      text.substr(kBegin.size() + kChecksumDigits, kMiddle.size()) != kMiddle ||
      !absl::EndsWith(text, kEnd)) {
    return NoManifest("the first or last bytes are wrong");
  }
  const absl::string_view said = text.substr(kBegin.size(), kChecksumDigits);
  const absl::string_view body = text.substr(head, text.size() - head - kEnd.size());
  const std::string crc = absl::StrFormat("%08x", Crc32c(0, body));
  if (said != crc) {
    return NoManifest(absl::StrCat("its checksum is ", crc, "; expected ", said));
  }
  Manifest manifest;
  json::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const google::protobuf::StringPiece piece(body.data(), body.size());
  if (const auto status = json::JsonStringToMessage(piece, &manifest, options); !status.ok()) {
    return NoManifest(status.message().ToString());
  }
  if (manifest.format_version() != kCheckpointFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint has format ", manifest.format_version(), "; this program reads format ",
        kCheckpointFormatVersion, ": use the torchps that wrote it"));
  }
  if (absl::Status status = CheckManifest(manifest); !status.ok()) return status;
  return manifest;
}

absl::StatusOr<ManifestBlocks> GetBlocks(const Manifest& manifest) {
  absl::StatusOr<ModelLayout> layout = DecodeLayout(manifest.layout());
  if (!layout.ok()) return NoManifest(layout.status().message());
  absl::StatusOr<BlockMap> blocks =
      BlockMap::Create(*layout, manifest.job().wire().block_bytes(), manifest.server_count());
  if (!blocks.ok()) return NoManifest(blocks.status().message());
  return ManifestBlocks{*std::move(layout), *std::move(blocks)};
}

uint64_t NonfiniteBlocks(const Manifest& manifest) {
  uint64_t blocks = 0;
  for (const ShardInfo& shard : manifest.shard()) blocks += shard.nonfinite_blocks();
  return blocks;
}

}  // namespace torchps
