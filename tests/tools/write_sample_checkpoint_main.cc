// write_sample_checkpoint DIR: writes a checkpoint of a small model, by three servers, to
// DIR/checkpoints. Writes the expected values by name to DIR/expected.json.

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/testing/sample_checkpoint.h"
#include "torchps/storage/file_system.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  const torchps::SampleModel model;
  const auto files = torchps::MakePosixFileSystem();
  const absl::Status status =
      torchps::WriteCheckpoint(*files, folder + "/checkpoints", 1, 3, model);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  nlohmann::ordered_json expected;
  for (const torchps::Segment& segment : model.layout.segments()) {
    const auto begin = model.values.begin() + segment.offset;
    expected[segment.name] = {{"shape", segment.shape},
                              {"values", std::vector<float>(begin, begin + segment.length)}};
  }
  std::ofstream(folder + "/expected.json") << expected;
  return 0;
}
