#include "data/opening.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace torchps {

bool WantsTest(const JobSpec& job) {
  return !job.training().has_evaluate() || job.training().evaluate();
}

absl::Status NeedsPath(const std::string& source, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "data.path is not set, and data.source \"%s\" needs %s; name it with --data or data.path",
      source, what));
}

std::string Counts(const DataSource& source) {
  return absl::StrCat(source.train->size(), " to train on, ",
                      source.test ? absl::StrCat(source.test->size()) : "none", " to test on");
}

absl::StatusOr<Preprocessing> KnownPreprocessing(const JobSpec& job) {
  return Preprocessing::FromMetadata(GetPreprocessing(job));
}

absl::Status NotTrainedOn(const std::string& what, const JobSpec& job) {
  return absl::InvalidArgumentError(
      absl::StrFormat("data.source is \"%s\", but the model file's metadata do not describe %s; "
                      "use a model.safetensors from a run on such data",
                      job.data().source(), what));
}

}  // namespace torchps
