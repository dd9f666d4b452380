#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torchps/common/block_map.h"
#include "torchps/common/model_layout.h"
#include "torchps/proto/checkpoint.pb.h"

namespace torchps {

// Encodes and decodes MANIFEST.json: the CRC-32C of the JSON text, followed by the manifest as
// JSON. Thread-safe.

inline constexpr uint32_t kCheckpointFormatVersion = 2;
// Readers and writers refuse larger manifests.
inline constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;

// Sets format_version of `manifest` and returns the text of MANIFEST.json. INVALID_ARGUMENT: the
// manifest is not valid; the message is the reason.
absl::StatusOr<std::string> EncodeManifest(Manifest manifest);

// Returns the manifest in the text of MANIFEST.json. DATA_LOSS: the text is not an encoded
// manifest; the message is the reason. FAILED_PRECONDITION: the format version is not supported.
absl::StatusOr<Manifest> DecodeManifest(absl::string_view text);

// The layout and the blocks of a checkpoint. GetBlocks returns DATA_LOSS if the manifest is
// inconsistent; this cannot happen after DecodeManifest.
struct ManifestBlocks {
  ModelLayout layout;
  BlockMap blocks;
};
absl::StatusOr<ManifestBlocks> GetBlocks(const Manifest& manifest);

// Returns the number of blocks with a value, or an element of the optimizer state, that is not
// finite.
uint64_t NonfiniteBlocks(const Manifest& manifest);

}  // namespace torchps
