// nemesis_whole_worker SERVERS SLOT JOURNAL LEVEL [linked=SEED | encoding=SEED]: a complete worker,
// like a user's program. Trains the module of nemesis_task.h until SIGTERM, and records the calls
// to the servers in a journal (nemesis_wire.h). By default it computes on the host, and the servers
// read the gradients from shared memory. If `linked` or `encoding` is given, it computes on a
// device made of host memory, and the device's link fails at some time. `encoding` also encodes the
// gradients on the device.

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "tests/fault/nemesis/nemesis_encoder.h"
#include "tests/fault/nemesis/nemesis_job.h"
#include "tests/fault/nemesis/nemesis_program.h"
#include "tests/fault/nemesis/nemesis_task.h"
#include "tests/fault/nemesis/nemesis_wire.h"
#include "tests/worker/cuda/fake_device.h"
#include "tests/worker/device/fake_link.h"
#include "tests/worker/feed/fake_lift.h"
#include "torch/utils.h"
#include "torchps/client/calls/server_channel.h"
#include "torchps/common/clock.h"
#include "torchps/common/hash.h"
#include "torchps/common/process/command_line.h"
#include "torchps/common/stop_latch.h"
#include "torchps/worker/slot/run_worker.h"

namespace torchps {
namespace {

using Carriage = NemesisJob::Carriage;

// A link's first failure, in operations; a step is about fifty operations. Half of the links fail
// soon after the job begins, the other half up to 2^kDoublings times later. So some links fail
// early on a slow machine, and they do not all fail at once on a fast machine.
constexpr uint64_t kShortestLife = 1000;
constexpr uint64_t kDoublings = 7;

struct Device {
  uint64_t seed = 0;
  bool encodes = false;
};

void Log(const std::string& line) {
  std::fprintf(stderr, "nemesis_whole_worker: %s\n", line.c_str());
}

// Encodes by NemesisEncoder in place of kernels. A job without an encoding does not use it.
class EncodingDevice final : public FakeDevice {
  absl::StatusOr<std::unique_ptr<BlockEncoder>> MakeEncoder(
      const torch::Tensor& gradients, const BlockMap& block_map,
      const EncodingSpec& encoding) const override {
    return std::make_unique<NemesisEncoder>(gradients, block_map, encoding);
  }
};

// Makes the worker use a device made of host memory. Sets `is_broken` when the link fails.
void UseDevice(const Device& device, std::atomic<bool>* is_broken, WorkerOptions* options) {
  uint64_t random = device.seed;
  FakeLink::Options link;
  link.seed = SplitMix64(random);
  link.own_thread = true;
  const bool is_short = UniformBelow(random, 2) == 0;
  const uint64_t life = kShortestLife << (is_short ? 0 : UniformBelow(random, kDoublings));
  link.fail_at = static_cast<int64_t>(life + UniformBelow(random, life));
  // Copies each block separately.
  link.least_copy_bytes = 1;
  link.has_failed = is_broken;
  FakeLift::Options lift;
  lift.seed = SplitMix64(random);
  // Leaked, because the worker outlives this call.
  static auto* const counts = new FakeLift::Counts;
  static auto* const fake = new EncodingDevice;
  lift.counts = counts;
  fake->link = link;
  fake->lift = lift;
  options->device_factory = fake;
  options->loader_threads = 1;
}

// Parses the optional fifth argument. Returns false if it is not valid.
bool ParseDevice(absl::string_view how, std::optional<Device>* device) {
  if (how.empty()) return true;
  Device parsed;
  parsed.encodes = absl::ConsumePrefix(&how, "encoding=");
  if (!parsed.encodes && !absl::ConsumePrefix(&how, "linked=")) return false;
  if (!absl::SimpleAtoi(how, &parsed.seed)) return false;
  *device = parsed;
  return true;
}

Carriage GetCarriage(const std::optional<Device>& device) {
  if (!device.has_value()) return Carriage::kSharedMemory;
  return device->encodes ? Carriage::kInt8 : Carriage::kFloats;
}

absl::Status Work(const NemesisArguments& arguments, const std::optional<Device>& device,
                  StopLatch* stop, std::atomic<bool>* is_broken) {
  // Computes with one thread, because three such processes share a small machine.
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
  const std::optional<NemesisArguments> arguments = ParseNemesisArguments(argc, argv);
  std::optional<Device> device;
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
