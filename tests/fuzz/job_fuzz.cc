// Fuzzes the job file parser and the normalization of jobs.

#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"
#include "torchps/job/job_file.h"
#include "torchps/job/job_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torchps;
  const absl::StatusOr<JobSpec> job =
      ParseJobText(absl::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!job.ok()) return 0;
  const absl::StatusOr<JobSpec> normal = NormalizeJobSpec(*job);
  if (!normal.ok()) return 0;
  const absl::StatusOr<JobSpec> again = NormalizeJobSpec(*normal);
  FUZZ_CHECK(again.ok() && again->SerializeAsString() == normal->SerializeAsString());
  JobSpec completed = *normal;
  CompleteJobSpec(&completed, /*train_samples=*/1000).IgnoreError();
  return 0;
}
