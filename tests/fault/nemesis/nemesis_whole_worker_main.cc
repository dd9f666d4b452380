// nemesis_whole_worker SERVERS SLOT JOURNAL LEVEL [linked=SEED | encoding=SEED]: a whole worker, as
// a program of its own has it, that trains the module of tests/fault/nemesis/nemesis_task.h until
// SIGTERM. What passes between it and the servers is written down
// (tests/fault/nemesis/nemesis_wire.h). Without a third word it computes on the host, and servers
// read its gradients in shared memory; else on a device made of host memory, whose link fails at
// some time, and which may encode the gradients too.

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "client/calls/server_channel.h"
#include "common/clock.h"
#include "common/process/exit_codes.h"
#include "common/split_mix64.h"
#include "common/stop_latch.h"
#include "tests/fault/nemesis/nemesis_encoder.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_program.h"
#include "tests/fault/nemesis/nemesis_task.h"
#include "tests/fault/nemesis/nemesis_wire.h"
#include "tests/worker/device/fake_link.h"
#include "tests/worker/feed/fake_lift.h"
#include "torch/utils.h"
#include "worker/slot/run_worker.h"

namespace torchps {
namespace {

using Carriage = NemesisJob::Carriage;

// When a link fails, in operations, of which a step has some fifty: every other one soon after the
// job has begun, the others at any order of magnitude from there. So some fail early on a slow
// machine, and not all at once on a fast one.
constexpr uint64_t kShortestLife = 1000;
constexpr uint64_t kDoublings = 7;

struct Device {
  uint64_t seed = 0;
  bool encodes = false;
};

void Log(const std::string& line) {
  std::fprintf(stderr, "nemesis_whole_worker: %s\n", line.c_str());
}

// What lies apart from the host. `is_broken` is set when its link fails.
void UseDevice(const Device& device, std::atomic<bool>* is_broken, WorkerOptions* options) {
  uint64_t random = device.seed;
  FakeLink::Options link;
  link.seed = SplitMix64(random);
  link.own_thread = true;
  const bool is_short = UniformBelow(random, 2) == 0;
  const uint64_t life = kShortestLife << (is_short ? 0 : UniformBelow(random, kDoublings));
  link.fail_at = static_cast<int64_t>(life + UniformBelow(random, life));
  // Each block is worth a copy of its own.
  link.least_copy_bytes = 1;
  link.has_failed = is_broken;
  options->make_link = [link] { return std::make_unique<FakeLink>(link); };
  FakeLift::Options lift;
  lift.seed = SplitMix64(random);
  // The worker may outlive this call.
  static auto* const counts = new FakeLift::Counts;
  lift.counts = counts;
  options->make_lift = [lift](torch::Device) { return std::make_unique<FakeLift>(lift); };
  options->loader_threads = 1;
  if (!device.encodes) return;
  options->make_encoder = [](const torch::Tensor& gradients, const BlockMap& map,
                             const EncodingSpec& encoding) {
    return std::make_unique<NemesisEncoder>(gradients, map, encoding);
  };
}

// The fifth word. False: it is none of these.
bool ParseDevice(absl::string_view how, absl::optional<Device>* device) {
  if (how.empty()) return true;
  Device parsed;
  parsed.encodes = absl::ConsumePrefix(&how, "encoding=");
  if (!parsed.encodes && !absl::ConsumePrefix(&how, "linked=")) return false;
  if (!absl::SimpleAtoi(how, &parsed.seed)) return false;
  *device = parsed;
  return true;
}

Carriage GetCarriage(const absl::optional<Device>& device) {
  if (!device.has_value()) return Carriage::kSharedMemory;
  return device->encodes ? Carriage::kInt8 : Carriage::kFloats;
}

absl::Status Work(const NemesisArguments& arguments, const absl::optional<Device>& device,
                  StopLatch* stop, std::atomic<bool>* is_broken) {
  // Three such processes share a small machine.
  at::set_num_threads(1);
  const Carriage carriage = GetCarriage(device);
  const NemesisJob job = NemesisJob::Create(arguments.level, NemesisJob::Pace::kHurried, carriage);
  NemesisWire* const wire = NemesisWire::Listen(job, arguments.journal);
  const SteadyClock clock;
  WorkerOptions options;
  options.job = job.spec;
  for (const std::string& address : arguments.servers) {
    options.servers.push_back(ConnectToServer(static_cast<int>(options.servers.size()), address));
  }
  options.slot = arguments.slot;
  options.log = &Log;
  options.clock = &clock;
  options.stop = stop;
  if (device.has_value()) UseDevice(*device, is_broken, &options);
  bool trains = false;
  const Task task = MakeNemesisTask(wire, NemesisJob::Unit(carriage), [&trains] {
    if (trains) return;
    trains = true;
    std::puts("training");
    std::fflush(stdout);
  });
  return RunWorker(task, options);
}

int Main(int argc, char** argv) {
  const absl::optional<NemesisArguments> arguments = ParseNemesisArguments(argc, argv);
  absl::optional<Device> device;
  if (!arguments.has_value() || !ParseDevice(arguments->how, &device)) {
    Log("usage: nemesis_whole_worker SERVERS SLOT JOURNAL LEVEL [linked=SEED | encoding=SEED]");
    return static_cast<int>(ExitCode::kUsage);
  }
  return RunNemesisProgram(
      [&](StopLatch* stop, std::atomic<bool>* is_broken) {
        return Work(*arguments, device, stop, is_broken);
      },
      &Log);
}

}  // namespace
}  // namespace torchps

int main(int argc, char** argv) { return torchps::Main(argc, argv); }
