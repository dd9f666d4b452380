#include "data/data_registry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/sample_order.h"
#include "data/file/file_bytes.h"
#include "data/image/cifar10.h"
#include "data/image/digits.h"
#include "data/image/idx.h"
#include "data/image_dataset.h"
#include "data/row_dataset.h"
#include "data/table/csv.h"
#include "data/text/generated_text.h"
#include "data/text_dataset.h"

namespace torchps {
namespace {

// What the text source is without a file: long enough that a small model does not know it by heart.
constexpr int64_t kGeneratedTextBytes = 400'000;

// One in so many bytes of a text is kept for testing: its end.
constexpr int64_t kTextTestShare = 10;

// EpochOrder's epochs count from 1; this one, of no epoch, splits a table.
constexpr int kSplitEpoch = 0;

bool WantsTest(const JobSpec& job) {
  return !job.training().has_evaluate() || job.training().evaluate();
}

absl::Status NeedsPath(const std::string& source, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "data.path: expected %s for data.source \"%s\", got nothing (or use --data)", what, source));
}

// "10000 to train on, 10000 to test on"
std::string Counts(const DataSource& source) {
  return absl::StrCat(source.train->size(), " to train on, ",
                      source.test ? absl::StrCat(source.test->size()) : "none", " to test on");
}

// As a JSON array, with enough digits to give the same numbers back.
template <typename Number>
std::string Numbers(const std::vector<Number>& numbers) {
  return absl::StrCat("[",
                      absl::StrJoin(numbers, ", ",
                                    [](std::string* out, Number number) {
                                      absl::StrAppendFormat(
                                          out, "%.*g", std::numeric_limits<Number>::max_digits10,
                                          number);
                                    }),
                      "]");
}

int64_t MaxLabel(const ImageSet& images) {
  return *std::max_element(images.labels.begin(), images.labels.end());
}

// Training and test images as datasets of one normalisation. `test` may have no image.
DataSource Images(ImageSet train, ImageSet test, int64_t classes, const std::string& name) {
  const Normalization normalization = MeasureNormalization(train);
  DataSource source;
  source.transform = {{"input", "(byte / 255 - input_mean) / input_deviation of each channel"},
                      {"input_mean", Numbers(normalization.mean)},
                      {"input_deviation", Numbers(normalization.deviation)}};
  source.description = absl::StrFormat("%s, %d classes, images %dx%dx%d", name, classes,
                                       train.channels, train.height, train.width);
  source.train = std::make_shared<ImageDataset>(std::move(train), normalization, classes);
  if (test.size() > 0) {
    source.test = std::make_shared<ImageDataset>(std::move(test), normalization, classes);
  }
  absl::StrAppend(&source.description, ": ", Counts(source));
  return source;
}

absl::StatusOr<DataSource> OpenDigits(const JobSpec& job) {
  const int64_t train = job.data().train_samples();
  const int64_t test = WantsTest(job) ? job.data().test_samples() : 0;
  constexpr int64_t kMost = kMaxDataFileBytes / (28 * 28);
  if (train < 1 || train > kMost || test < 0 || test > kMost) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data.train_samples, data.test_samples: expected 1 to %d generated digits "
                        "to train on and at most as many to test on, got %d and %d",
                        kMost, train, test));
  }
  return Images(GenerateDigits(train, job.seed(), DigitsPart::kTrain),
                GenerateDigits(test, job.seed(), DigitsPart::kTest), 10,
                absl::StrCat("generated digits of seed ", job.seed()));
}

absl::StatusOr<DataSource> OpenIdx(const JobSpec& job, const std::string& directory) {
  if (directory.empty()) return NeedsPath("idx", "the directory of the IDX files");
  absl::StatusOr<ImageSet> train = ReadIdxDirectory(directory, "train");
  if (!train.ok()) return train.status();
  // A last layer of one output would have nothing to choose from.
  const int64_t classes = std::max<int64_t>(MaxLabel(*train) + 1, 2);
  absl::StatusOr<ImageSet> test = ImageSet{};
  if (WantsTest(job)) {
    test = ReadIdxDirectory(directory, "t10k");
    if (!test.ok()) return test.status();
    if (test->height != train->height || test->width != train->width) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: expected test images of %dx%d pixels, as the training images have, got %dx%d",
          directory, train->height, train->width, test->height, test->width));
    }
    if (MaxLabel(*test) >= classes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: expected test labels of 0 to %d, as the training labels are, got %d",
                          directory, classes - 1, MaxLabel(*test)));
    }
  }
  train->Limit(job.data().train_samples());
  test->Limit(job.data().test_samples());
  return Images(*std::move(train), *std::move(test), classes,
                absl::StrCat("IDX files of ", directory));
}

absl::StatusOr<DataSource> OpenCifar10(const JobSpec& job, const std::string& directory) {
  if (directory.empty()) return NeedsPath("cifar10", "the directory of CIFAR-10's binary version");
  absl::StatusOr<ImageSet> train = ReadCifar10Train(directory);
  if (!train.ok()) return train.status();
  absl::StatusOr<ImageSet> test = ImageSet{};
  if (WantsTest(job)) test = ReadCifar10Test(directory);
  if (!test.ok()) return test.status();
  train->Limit(job.data().train_samples());
  test->Limit(job.data().test_samples());
  return Images(*std::move(train), *std::move(test), 10, absl::StrCat("CIFAR-10 of ", directory));
}

absl::StatusOr<DataSource> OpenCsv(const JobSpec& job, const std::string& path) {
  if (path.empty()) return NeedsPath("csv", "a CSV file");
  absl::StatusOr<RowSet> table = ReadCsv(path, job.data().csv().label_column());
  if (!table.ok()) return table.status();

  const int64_t rows = table->size();
  const std::vector<int64_t> order = EpochOrder(job.seed(), kSplitEpoch, rows);
  const int64_t test_rows =
      std::clamp<int64_t>(std::llround(job.data().csv().test_fraction() * rows), 0, rows - 1);
  absl::Span<const int64_t> test(order.data(), test_rows);
  absl::Span<const int64_t> train(order.data() + test_rows, rows - test_rows);
  if (job.data().train_samples() > 0) train = train.subspan(0, job.data().train_samples());
  if (job.data().test_samples() > 0) test = test.subspan(0, job.data().test_samples());

  const int64_t classes =
      std::max(*std::max_element(table->labels.begin(), table->labels.end()) + 1, 2);
  const Standardization standardization = MeasureStandardization(*table, train);
  DataSource source;
  source.transform = {{"input", "(value - input_mean) / input_deviation of each column"},
                      {"input_mean", Numbers(standardization.mean)},
                      {"input_deviation", Numbers(standardization.deviation)},
                      {"input_columns", absl::StrJoin(table->columns, ",")}};
  source.train = std::make_shared<RowDataset>(*table, train, standardization, classes);
  if (WantsTest(job) && !test.empty()) {
    source.test = std::make_shared<RowDataset>(*table, test, standardization, classes);
  }
  source.description = absl::StrFormat("rows of %s, %d classes, %d features: %s", path, classes,
                                       table->columns.size(), Counts(source));
  return source;
}

absl::StatusOr<DataSource> OpenText(const JobSpec& job, const std::string& path) {
  const int64_t context = job.model().transformer().context();
  if (context < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.transformer.context: expected 1 or more bytes for data.source \"text\", got ",
        context));
  }
  absl::StatusOr<std::string> text =
      path.empty() ? GenerateText(kGeneratedTextBytes, job.seed()) : ReadFileBytes(path);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(
        path,
        ": expected a text file, got none (name it with --data or data.path, or leave both "
        "empty for generated text)"));
  }
  if (!text.ok()) return text.status();

  const std::string name = path.empty() ? absl::StrCat("generated text of seed ", job.seed())
                                        : absl::StrCat("text of ", path);
  const int64_t test_bytes = text->size() / kTextTestShare;
  if (test_bytes < context + 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: expected at least %d bytes, so that a tenth of them holds a sample of "
                        "model.transformer.context = %d bytes, got %d",
                        name, (context + 1) * kTextTestShare, context, text->size()));
  }
  const size_t split = text->size() - test_bytes;
  DataSource source;
  source.train =
      std::make_shared<TextDataset>(text->substr(0, split), context, job.data().train_samples());
  if (WantsTest(job)) {
    source.test =
        std::make_shared<TextDataset>(text->substr(split), context, job.data().test_samples());
  }
  source.description =
      absl::StrFormat("%s, samples of %d bytes: %s", name, context, Counts(source));
  return source;
}

}  // namespace

absl::StatusOr<DataSource> OpenData(const JobSpec& job, const std::string& path_override) {
  const std::string& path = path_override.empty() ? job.data().path() : path_override;
  const std::string& source = job.data().source();
  if (source == "digits") return OpenDigits(job);
  if (source == "idx") return OpenIdx(job, path);
  if (source == "cifar10") return OpenCifar10(job, path);
  if (source == "csv") return OpenCsv(job, path);
  if (source == "text") return OpenText(job, path);
  return absl::InvalidArgumentError(absl::StrCat(
      "data.source: expected digits, idx, cifar10, csv or text, got \"", source, "\""));
}

}  // namespace torchps
