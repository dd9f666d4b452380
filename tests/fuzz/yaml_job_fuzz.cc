// Fuzzes the YAML and JSON job parser.

#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"
#include "torchps/job/file/yaml_job.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  torchps::ParseYamlJob(absl::string_view(reinterpret_cast<const char*>(data), size), "fuzz")
      .status()
      .IgnoreError();
  return 0;
}
