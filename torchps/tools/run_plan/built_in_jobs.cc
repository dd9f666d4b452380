#include "torchps/tools/run_plan/built_in_jobs.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"

namespace torchps {
namespace {

struct Job {
  const char* name;
  const char* text;
};

constexpr Job kJobs[] = {
#include "torchps/tools/run_plan/job_texts.inc"
};

struct ShortName {
  const char* name;
  const char* job;
};
constexpr ShortName kShortNames[] = {
    {"digits", "mlp_digits"}, {"mnist", "convnet_mnist"}, {"text", "transformer_text"}};

}  // namespace

std::string BuiltInJob(const std::string& name) {
  std::error_code unknown;
  if (std::filesystem::is_regular_file(name, unknown)) return "";
  std::string wanted = name;
  for (const ShortName& each : kShortNames) {
    if (name == each.name) wanted = each.job;
  }
  for (const Job& job : kJobs) {
    if (wanted == job.name) return job.text;
  }
  return "";
}

std::string JobText(const std::string& file) {
  std::string built_in = BuiltInJob(file);
  if (!built_in.empty()) return built_in;
  std::ifstream stream(file == "-" ? "/dev/stdin" : file);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

bool IsReadOnce(const std::string& file) {
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::status(file, unknown);
  return file == "-" || absl::StartsWith(file, "/dev/") || std::filesystem::is_fifo(status);
}

std::vector<std::string> BuiltInJobNames() {
  std::vector<std::string> names;
  for (const ShortName& each : kShortNames) names.push_back(each.name);
  return names;
}

}  // namespace torchps
