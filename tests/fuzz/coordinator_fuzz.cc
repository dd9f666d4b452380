// Fuzzes a coordinator with messages from peers and files. The first byte selects a JoinRequest or
// a CoordinatorState to restore.

#include <google/protobuf/stubs/logging.h>

#include "absl/time/time.h"
#include "tests/fuzz/fuzz_target.h"
#include "torchps/proto/checkpoint.pb.h"
#include "torchps/proto/coordinator.pb.h"
#include "torchps/server/coordinator/job_coordinator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  // Silences Protobuf's warnings about strings that are not UTF-8.
  static const auto silenced = google::protobuf::SetLogHandler(nullptr);
  (void)silenced;
  if (size == 0) return 0;
  const auto bytes = static_cast<int>(size - 1);
  const absl::Duration now = absl::Seconds(1000);
  JobCoordinator::Options options;
  options.has_directory = true;
  JobCoordinator coordinator(options);
  if (data[0] % 2 == 0) {
    JoinRequest request;
    if (!request.ParseFromArray(data + 1, bytes)) return 0;
    coordinator.Join(request, now).IgnoreError();
  } else {
    CoordinatorState state;
    if (!state.ParseFromArray(data + 1, bytes)) return 0;
    const auto how =
        data[0] % 4 == 1 ? JobCoordinator::Return::kInPlace : JobCoordinator::Return::kResume;
    const absl::Status restored = coordinator.Restore(state, how, now);
    FUZZ_CHECK(restored.ok() == coordinator.has_job());
  }
  if (!coordinator.has_job()) return 0;
  // The saved state must be restorable in another coordinator.
  coordinator.Tick(now + absl::Hours(2));
  const CoordinatorState state = coordinator.Save(now + absl::Hours(2));
  JobCoordinator next(options);
  FUZZ_CHECK(next.Restore(state, JobCoordinator::Return::kInPlace, now).ok());
  return 0;
}
