#include "data/open_table.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/sample_order.h"
#include "data/opening.h"
#include "data/row_dataset.h"
#include "data/table/csv.h"
#include "data/table/csv_columns.h"

namespace torchps {
namespace {

// EpochOrder's epochs count from 1; this one, of no epoch, splits a table.
constexpr int kSplitEpoch = 0;

// A column that the training rows know nothing of has no mean to stand in.
absl::Status CheckColumns(const RowSet& table, absl::Span<const int64_t> rows,
                          const std::string& path) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const bool any = std::any_of(rows.begin(), rows.end(), [&](int64_t row) {
      return !std::isnan(table.values[row * table.columns.size() + c]);
    });
    if (any) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected a value in some training row of feature column %d%s, got missing ones only",
        path, c, table.columns[c].empty() ? "" : absl::StrCat(" (", table.columns[c], ")")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DataSource> OpenCsv(const JobSpec& job, const std::string& path) {
  if (path.empty()) return NeedsPath("csv", "a CSV file");
  absl::StatusOr<RowSet> table = ReadCsv(path, ColumnsOf(job.data().csv()));
  if (!table.ok()) return table.status();

  const int64_t rows = table->size();
  const std::vector<int64_t> order = EpochOrder(job.seed(), kSplitEpoch, rows);
  const int64_t test_rows =
      std::clamp<int64_t>(std::llround(job.data().csv().test_fraction() * rows), 0, rows - 1);
  absl::Span<const int64_t> test(order.data(), test_rows);
  absl::Span<const int64_t> train(order.data() + test_rows, rows - test_rows);
  if (job.data().train_samples() > 0) train = train.subspan(0, job.data().train_samples());
  if (job.data().test_samples() > 0) test = test.subspan(0, job.data().test_samples());
  if (absl::Status status = CheckColumns(*table, train, path); !status.ok()) return status;

  const bool regression = !table->target_columns.empty();
  int64_t classes = 0;
  if (!regression) {
    // A last layer of one output would have nothing to choose from.
    classes = std::max(*std::max_element(table->labels.begin(), table->labels.end()) + 1, 2);
  }
  const Standardization standardization = MeasureStandardization(*table, train);
  DataSource source;
  source.transform = {{"input", "(value - input_mean) / input_deviation of each column"},
                      {"input_mean", JsonArray(standardization.mean)},
                      {"input_deviation", JsonArray(standardization.deviation)},
                      {"input_columns", absl::StrJoin(table->columns, ",")}};
  if (job.data().csv().missing() == COLUMN_MEAN) {
    source.transform["input_missing"] = "counts as its column's input_mean";
  }
  if (regression) source.transform["target_columns"] = JsonArray(table->target_columns);
  NameClasses(table->class_names, source);
  source.train = std::make_shared<RowDataset>(*table, train, standardization, classes);
  if (WantsTest(job) && !test.empty()) {
    source.test = std::make_shared<RowDataset>(*table, test, standardization, classes);
  }
  source.description =
      absl::StrFormat("rows of %s, %s, %d features: %s", path,
                      regression ? absl::StrCat(table->target_columns.size(), " to predict")
                                 : absl::StrCat(classes, " classes"),
                      table->columns.size(), Counts(source));
  return source;
}

}  // namespace torchps
