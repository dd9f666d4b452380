// Runs a fuzz target on the corpus and on random changes of it, without libFuzzer:
//
//   TARGET CORPUS_DIRECTORY [EXECUTIONS [SEED]]
//
// The seed determines the inputs. After a crash the driver prints the input's number.
// TORCHPS_FUZZ_ONE=NUMBER runs only that input.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "torchps/common/hash.h"

namespace torchps {
namespace {

constexpr uint64_t kExecutions = 3000;
constexpr size_t kMaxBytes = 1 << 16;

uint64_t g_input = 0;

void TellInput(int signal) {
  std::fprintf(stderr, "signal %d on input %lu\n", signal, g_input);
  std::_Exit(1);
}

std::vector<std::string> ReadCorpus(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().string());
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> corpus;
  for (const std::string& name : names) {
    std::ifstream file(name, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// Applies one to four changes that often break parsers.
std::string Mutate(const std::vector<std::string>& corpus, uint64_t random) {
  std::string bytes = corpus[UniformBelow(random, corpus.size())];
  const uint64_t changes = 1 + UniformBelow(random, 4);
  for (uint64_t i = 0; i < changes; ++i) {
    const size_t at = UniformBelow(random, bytes.size() + 1);
    switch (UniformBelow(random, 7)) {
      case 0:  // flip a bit
        if (at < bytes.size()) bytes[at] ^= static_cast<char>(1 << UniformBelow(random, 8));
        break;
      case 1:  // change a byte
        if (at < bytes.size()) bytes[at] = static_cast<char>(UniformBelow(random, 256));
        break;
      case 2:  // set some bytes to 0 or 0xff
        for (size_t j = at; j < std::min(bytes.size(), at + (1u << UniformBelow(random, 4))); ++j) {
          bytes[j] = static_cast<char>(UniformBelow(random, 2) == 0 ? 0xff : 0);
        }
        break;
      case 3:  // cut the end off
        bytes.resize(at);
        break;
      case 4:  // remove some bytes
        bytes.erase(at, UniformBelow(random, 16));
        break;
      case 5:  // repeat some bytes
        bytes.insert(at, bytes.substr(at, UniformBelow(random, 64)));
        break;
      default: {  // append the end of another input
        const std::string& other = corpus[UniformBelow(random, corpus.size())];
        bytes.resize(at);
        bytes += other.substr(std::min(at, other.size()));
      }
    }
  }
  bytes.resize(std::min(bytes.size(), kMaxBytes));
  return bytes;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_DIRECTORY [EXECUTIONS [SEED]]\n", argv[0]);
    return 2;
  }
  const std::vector<std::string> corpus = ReadCorpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "no corpus in %s\n", argv[1]);
    return 2;
  }
  const uint64_t executions = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : kExecutions;
  const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  const char* const one = std::getenv("TORCHPS_FUZZ_ONE");
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) {
    std::signal(signal, TellInput);
  }
  std::printf("seed %lu, %zu inputs in the corpus\n", seed, corpus.size());
  const auto began = std::chrono::steady_clock::now();
  for (g_input = 0; g_input < corpus.size() + executions; ++g_input) {
    if (one != nullptr && g_input != std::strtoull(one, nullptr, 10)) continue;
    uint64_t random = seed * 0x9e3779b97f4a7c15u + g_input;
    SplitMix64(random);
    const std::string bytes =
        g_input < corpus.size() ? corpus[g_input] : Mutate(corpus, SplitMix64(random));
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("%lu executions in %.1f s, %.0f in a second\n", g_input, took.count(),
              static_cast<double>(g_input) / took.count());
  return 0;
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) { return torchps::Main(argc, argv); }
