#pragma once

#include "data/table/csv.h"
#include "proto/job.pb.h"

namespace torchps {

// What a job says of its CSV file.
inline CsvColumns ColumnsOf(const CsvSpec& spec) {
  CsvColumns columns;
  columns.label = spec.label_column();
  columns.targets.assign(spec.target_column().begin(), spec.target_column().end());
  columns.missing = spec.missing() == COLUMN_MEAN ? CsvColumns::Missing::kKeep
                    : spec.missing() == DROP_ROW  ? CsvColumns::Missing::kDropRow
                                                  : CsvColumns::Missing::kRefuse;
  return columns;
}

}  // namespace torchps
