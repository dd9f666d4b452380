#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/block_map.h"
#include "common/model_layout.h"
#include "proto/checkpoint.pb.h"

namespace torchps {

// The contents of MANIFEST.json: the manifest as JSON, with the CRC-32C of exactly that text before
// it. Thread-safe.

inline constexpr uint32_t kCheckpointFormatVersion = 2;
// No manifest is longer; nothing longer is read.
inline constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;

// Sets format_version. INVALID_ARGUMENT: it could not be read again, with the reason.
absl::StatusOr<std::string> EncodeManifest(Manifest manifest);

// DATA_LOSS: not as EncodeManifest made it, with the reason. FAILED_PRECONDITION: of another
// format version.
absl::StatusOr<Manifest> DecodeManifest(absl::string_view text);

// How the shards of a manifest's checkpoint are cut. DATA_LOSS: the manifest makes no sense, which
// DecodeManifest has ruled out.
struct ManifestBlocks {
  ModelLayout layout;
  BlockMap blocks;
};
absl::StatusOr<ManifestBlocks> GetBlocks(const Manifest& manifest);

// Blocks of which some value or optimizer slot is not finite.
uint64_t NonfiniteBlocks(const Manifest& manifest);

}  // namespace torchps
