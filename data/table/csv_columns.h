#pragma once

#include "data/table/csv.h"
#include "proto/job.pb.h"

namespace torchps {

// Returns the columns that a job names in the CSV file.
inline CsvColumns GetColumns(const CsvSpec& spec) {
  CsvColumns columns;
  columns.label = spec.label_column();
  columns.targets.assign(spec.target_column().begin(), spec.target_column().end());
  columns.ignored.assign(spec.ignore_column().begin(), spec.ignore_column().end());
  columns.categories.assign(spec.category_column().begin(), spec.category_column().end());
  columns.allow_unknown_category = spec.unknown_category();
  if (spec.has_header()) columns.header = spec.header();
  columns.missing = spec.missing() == COLUMN_MEAN ? CsvColumns::Missing::kKeep
                    : spec.missing() == DROP_ROW  ? CsvColumns::Missing::kDropRow
                                                  : CsvColumns::Missing::kRefuse;
  return columns;
}

}  // namespace torchps
