// Fuzzes the manifest decoder, with the input as a file and as the JSON in a file with a valid
// checksum.

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"
#include "torchps/checkpoint/manifest.h"
#include "torchps/storage/crc32c.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::string& file :
       {std::string(text),
        absl::StrCat("{\n\"crc32c\": \"", absl::StrFormat("%08x", Crc32c(0, text)),
                     "\",\n\"manifest\": ", text, "}\n")}) {
    const absl::StatusOr<Manifest> manifest = DecodeManifest(file);
    if (!manifest.ok()) continue;
    const absl::StatusOr<std::string> written = EncodeManifest(*manifest);
    FUZZ_CHECK(written.ok());
    FUZZ_CHECK(DecodeManifest(*written).ok());
  }
  return 0;
}
