#include "torchps/tools/doctor/gpu_checks.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <regex>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "torchps/common/clock.h"
#include "torchps/job/built_ins.h"
#include "torchps/tools/base/child_process.h"
#include "torchps/tools/base/format.h"
#include "torchps/tools/base/status_line.h"

namespace torchps {
namespace {

using Level = Finding::Level;

// Loading gigabytes of CUDA libraries from a cold disk can be slow.
constexpr absl::Duration kPatience = absl::Minutes(1);

std::string DriverVersion() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::stringstream text;
  text << file.rdbuf();
  const std::string whole = text.str();
  std::smatch version;
  return std::regex_search(whole, version, std::regex("[0-9]+\\.[0-9]+(\\.[0-9]+)?"))
             ? version.str()
             : std::string();
}

int DeviceFiles() {
  int count = 0;
  while (access(absl::StrCat("/dev/nvidia", count).c_str(), F_OK) == 0) ++count;
  return count;
}

// Removes the program name from "ps_worker: sentence".
std::string WithoutName(absl::string_view line) {
  const size_t colon = line.find(": ");
  return std::string(colon == absl::string_view::npos ? line : line.substr(colon + 2));
}

void AskWorker(const std::string& worker, GpuFacts* facts) {
  ChildProcess::Options program;
  program.name = "ps_worker";
  program.command = {worker, "--devices"};
  const auto child = ChildProcess::Start(std::move(program));
  if (!child.ok()) {
    facts->complaint = std::string(child.status().message());
    return;
  }
  const auto take = [&](ChildProcess::Stream stream, absl::string_view line) {
    const std::optional<StatusLine> status = ParseStatusLine(line);
    if (stream == ChildProcess::Stream::kError) {
      facts->complaint = WithoutName(line);
    } else if (status.has_value() && status->event == "devices") {
      facts->seen = absl::StrSplit(status->Field("seen"), ',', absl::SkipEmpty());
    }
  };
  const SteadyClock clock;
  const absl::Duration deadline = clock.Now() + kPatience;
  (*child)->Collect(take);
  while ((*child)->running() && clock.Now() < deadline) {
    WaitForActivity({child->get()}, /*wake_fd=*/-1, deadline - clock.Now());
    (*child)->Collect(take);
  }
  if ((*child)->running()) {
    (*child)->Kill();
    facts->complaint =
        absl::StrCat("took longer than ", absl::FormatDuration(kPatience), " to list its devices");
  } else if (facts->seen.empty() && facts->complaint.empty()) {
    facts->complaint = absl::StrCat("did not list any devices and ", (*child)->ExitReason());
  }
}

bool SeesGpu(const GpuFacts& facts) {
  return std::any_of(facts.seen.begin(), facts.seen.end(),
                     [](const std::string& name) { return absl::StartsWith(name, "cuda:"); });
}

Finding DriverFinding(const GpuFacts& facts) {
  if (!facts.driver.empty()) {
    return {Level::kOk, "driver", absl::StrCat("NVIDIA ", facts.driver), ""};
  }
  if (SeesGpu(facts)) return {Level::kOk, "driver", "is loaded; its version is unknown", ""};
  return {Level::kProblem, "driver", "no NVIDIA driver is loaded here",
          "install it ('nvidia-smi' must list the GPU), or use --device=cpu"};
}

Finding VisibleFinding(const GpuFacts& facts) {
  const std::string hides = facts.visible.has_value()
                                ? absl::StrCat("CUDA_VISIBLE_DEVICES=", *facts.visible, " is set")
                                : std::string();
  const std::string there = Count(facts.device_files, "GPU");
  if (SeesGpu(facts)) {
    const auto shown = static_cast<int64_t>(facts.seen.size()) - 1;
    const std::string text =
        absl::StrCat(Count(shown, "GPU"), shown == 1 ? " is seen" : " are seen");
    return {Level::kOk, "GPUs", hides.empty() ? text : absl::StrCat(text, ", ", hides), ""};
  }
  if (facts.device_files == 0) {
    return {Level::kProblem, "GPUs", "there is no /dev/nvidia0",
            "pass the GPU to the container, or load the driver's kernel module"};
  }
  if (!hides.empty()) {
    return {Level::kProblem, "GPUs", absl::StrCat(there, " in /dev, but none is visible; ", hides),
            "unset it, or list GPUs that exist"};
  }
  return {Level::kWarning, "GPUs",
          absl::StrCat(there, " in /dev, but none is visible to ps_worker"),
          "the line about ps_worker gives the reason"};
}

Finding WorkerFinding(const std::string& device, const GpuFacts& facts) {
  if (!facts.worker.ok()) {
    return {Level::kProblem, "ps_worker", std::string(facts.worker.status().message()),
            "'bazel build --config=cuda //torchps:ps_worker'; docs/gpus.md has the steps"};
  }
  const std::string subject = absl::StrCat("ps_worker ", *facts.worker);
  if (facts.seen.empty()) {
    return {Level::kProblem, subject, facts.complaint,
            "the program must start first; a CUDA build needs torch at the path it was built with"};
  }
  if (absl::StrContains(facts.complaint, "built without CUDA")) {
    return {Level::kProblem, subject, "is built without CUDA", "docs/gpus.md has the steps"};
  }
  if (!SeesGpu(facts)) {
    return {Level::kProblem, subject, "is a CUDA build but sees no GPU",
            facts.driver.empty() ? "install the driver first"
                                 : "is the driver as new as the CUDA that torch is built with?"};
  }
  const std::string text = absl::StrCat("sees ", absl::StrJoin(facts.seen, ", "));
  for (const absl::string_view name : absl::StrSplit(device, ',')) {
    if (name == "auto" || name == "cuda" || name == "cuda:all") continue;
    if (std::find(facts.seen.begin(), facts.seen.end(), name) == facts.seen.end()) {
      return {Level::kProblem, subject, absl::StrCat(text, ", but not ", name),
              "name one of these"};
    }
  }
  return {Level::kOk, subject, text, ""};
}

}  // namespace

GpuFacts FindGpus(const absl::StatusOr<std::string>& worker) {
  GpuFacts facts;
  facts.driver = DriverVersion();
  facts.device_files = DeviceFiles();
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) {
    facts.visible = visible;
  }
  facts.worker = worker;
  if (worker.ok()) AskWorker(*worker, &facts);
  return facts;
}

std::vector<Finding> GpuFindings(const std::string& device, const GpuFacts& facts) {
  return {DriverFinding(facts), VisibleFinding(facts), WorkerFinding(device, facts)};
}

std::vector<Finding> CheckDevice(const std::string& device,
                                 const absl::StatusOr<std::string>& worker) {
  if (!CheckDeviceNames(device).ok()) {
    return {{Level::kProblem, "device", absl::StrCat("'", device, "' is not a device"),
             "expected auto, cpu, cuda, cuda:INDEX, cuda:all, or a list such as cuda:0,cuda:1"}};
  }
  if (device != "auto" && !absl::StrContains(device, "cuda")) {
    return {{Level::kOk, "device", device, ""}};
  }
  const GpuFacts facts = FindGpus(worker);
  if (device == "auto" && !SeesGpu(facts)) {
    return {{Level::kOk, "device", "auto selects the CPU, because no GPU is visible", ""}};
  }
  return GpuFindings(device, facts);
}

}  // namespace torchps
