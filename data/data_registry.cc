#include "data/data_registry.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "data/open_images.h"
#include "data/open_table.h"
#include "data/open_text.h"
#include "data/opening.h"

namespace torchps {

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
