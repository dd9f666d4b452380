#include "torchps/data/open_table.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "torchps/common/sample_order.h"
#include "torchps/data/data_registry.h"
#include "torchps/data/table/csv.h"
#include "torchps/data/table/csv_classes.h"
#include "torchps/data/tensor_dataset.h"

namespace torchps {
namespace {

// The epoch whose sample order splits a table. Training uses the orders of epochs from 1.
constexpr int kSplitEpoch = 0;

using Rows = absl::Span<const int64_t>;

// The rows of a table, shuffled with the job's seed and split.
struct Split {
  std::vector<int64_t> order;
  Rows train;
  Rows test;
};

Split SplitRows(const JobSpec& job, int64_t rows) {
  Split split;
  split.order = EpochOrder(job.seed(), kSplitEpoch, rows);
  const int64_t test =
      std::clamp<int64_t>(std::llround(job.data().csv().test_fraction() * rows), 0, rows - 1);
  split.test = Rows(split.order).subspan(0, test);
  split.train = Rows(split.order).subspan(test);
  if (job.data().train_samples() > 0)
    split.train = split.train.subspan(0, job.data().train_samples());
  if (job.data().test_samples() > 0) split.test = split.test.subspan(0, job.data().test_samples());
  return split;
}

std::vector<int64_t> AllRows(const RowSet& table) {
  std::vector<int64_t> rows(table.rows);
  for (int64_t row = 0; row < table.rows; ++row) rows[row] = row;
  return rows;
}

// Refuses a column without a value in the training rows, because its mean would be undefined.
absl::Status CheckColumns(const RowSet& table, Rows rows, const std::string& path) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const bool any = std::any_of(rows.begin(), rows.end(), [&](int64_t row) {
      return !std::isnan(table.values[row * table.columns.size() + c]);
    });
    if (any) continue;
    const std::string& name = table.columns[c].name;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected a value in some training row of feature column %d%s, got missing ones only",
        path, c, name.empty() ? "" : absl::StrCat(" (", name, ")")));
  }
  return absl::OkStatus();
}

bool HasSameColumns(const Preprocessing& a, const Preprocessing& b) {
  const auto same = [](const FeatureColumn& x, const FeatureColumn& y) {
    return x.name == y.name && x.categories == y.categories;
  };
  return std::equal(a.columns.begin(), a.columns.end(), b.columns.begin(), b.columns.end(), same) &&
         a.class_names == b.class_names && a.classes >= b.classes &&
         a.target_columns == b.target_columns;
}

// Returns a line about the columns and the dropped rows, for the run's description.
std::string Described(const RowSet& table, const Preprocessing& preprocessing,
                      const std::string& path) {
  std::string text = absl::StrFormat(
      "rows of %s (%s), %s, %d features", path, table.had_header ? "with a header" : "no header",
      preprocessing.target_columns.empty()
          ? absl::StrCat(preprocessing.classes, " classes")
          : absl::StrCat(preprocessing.target_columns.size(), " to predict"),
      preprocessing.features());
  if (!table.left_out.empty()) {
    absl::StrAppend(&text, ", without ", absl::StrJoin(table.left_out, ", "));
  }
  if (table.dropped > 0) {
    absl::StrAppend(&text, ", ", table.dropped, " rows with a missing value left out");
  }
  return text;
}

DataSource TrainingSource(const JobSpec& job, const RowSet& table, Preprocessing preprocessing,
                          const Split& split, std::string description) {
  DataSource source;
  source.train = std::make_shared<RowDataset>(table, split.train, preprocessing);
  if (WantsTest(job) && !split.test.empty()) {
    source.test = std::make_shared<RowDataset>(table, split.test, preprocessing);
  }
  preprocessing.training_data = source.train->Fingerprint();
  source.preprocessing = std::move(preprocessing);
  source.description = absl::StrCat(std::move(description), ": ", Counts(source));
  return source;
}

absl::StatusOr<DataSource> OpenToTrain(const JobSpec& job, const RowSet& table,
                                       const Preprocessing& known, const std::string& path) {
  const Split split = SplitRows(job, table.rows);
  if (absl::Status status = CheckColumns(table, split.train, path); !status.ok()) return status;
  Preprocessing preprocessing = MeasurePreprocessing(table, split.train);
  preprocessing.missing_as_mean = job.data().csv().missing() == COLUMN_MEAN;
  std::string description = Described(table, preprocessing, path);
  if (known.is_table() && HasSameColumns(known, preprocessing)) {
    const bool differs = known.input_mean != preprocessing.input_mean ||
                         known.input_deviation != preprocessing.input_deviation;
    preprocessing = known;
    if (differs) absl::StrAppend(&description, ", scaled as the model's own training data were");
  }
  return TrainingSource(job, table, std::move(preprocessing), split, std::move(description));
}

// Opens the test rows of the table that the model was trained on, or all rows of another table.
absl::StatusOr<DataSource> OpenToUse(const JobSpec& job, const RowSet& table,
                                     const Preprocessing& known, const std::string& path) {
  if (job.data().use() == EVALUATION && known.training_data != 0) {
    const Split split = SplitRows(job, table.rows);
    DataSource source = TrainingSource(job, table, known, split, Described(table, known, path));
    if (source.train->Fingerprint() == known.training_data) {
      source.test_description = absl::StrCat("the test part of ", path);
      return source;
    }
  }
  DataSource source;
  source.test = source.train = std::make_shared<RowDataset>(table, AllRows(table), known);
  source.preprocessing = known;
  source.description = Described(table, known, path);
  source.test_description = absl::StrCat("all rows of ", path);
  if (table.dropped > 0) {
    absl::StrAppend(&source.test_description, " but ", table.dropped, " with a missing value");
  }
  return source;
}

}  // namespace

absl::StatusOr<DataSource> OpenCsv(const JobSpec& job, const std::string& path) {
  if (path.empty()) return NeedsPath("csv", "a CSV file");
  const absl::StatusOr<Preprocessing> known = KnownPreprocessing(job);
  if (!known.ok()) return known.status();
  const bool trains = job.data().use() == TRAINING;
  CsvColumns columns = GetColumns(job.data().csv());
  if (!trains) {
    if (!known->is_table()) return NotTrainedOn("a table", job);
    columns.schema = known->ToSchema();
    columns.needs_answers = job.data().use() == EVALUATION;
  }
  const absl::StatusOr<RowSet> table = ReadCsv(path, columns);
  if (!table.ok()) return table.status();
  return trains ? OpenToTrain(job, *table, *known, path) : OpenToUse(job, *table, *known, path);
}

}  // namespace torchps
