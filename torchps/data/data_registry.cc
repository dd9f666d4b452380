#include "torchps/data/data_registry.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "torchps/data/open_images.h"
#include "torchps/data/open_table.h"
#include "torchps/data/open_text.h"

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

absl::StatusOr<DataSource> OpenData(const JobSpec& job, const std::string& path_override) {
  const std::string& path = path_override.empty() ? job.data().path() : path_override;
  const std::string& source = job.data().source();
  if (source == "digits") return OpenDigits(job, path);
  if (source == "idx") return OpenIdx(job, path);
  if (source == "cifar10") return OpenCifar10(job, path);
  if (source == "images") return OpenImageFolder(job, path);
  if (source == "csv") return OpenCsv(job, path);
  if (source == "text") return OpenText(job, path);
  if (source == "tokens") return OpenTokens(job, path);
  return absl::InvalidArgumentError(absl::StrCat(
      "data.source: expected digits, idx, cifar10, images, csv, text or tokens, got \"", source,
      "\""));
}

bool HasPreprocessing(const JobSpec& job) {
  const absl::StatusOr<Preprocessing> known = KnownPreprocessing(job);
  return known.ok() && (known->is_table() || known->is_images() || known->is_text());
}

}  // namespace torchps
