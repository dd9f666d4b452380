#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/data/test_files.h"
#include "torchps/data/table/csv.h"

namespace torchps {

class CsvTest : public ::testing::Test {
 protected:
  absl::StatusOr<RowSet> Read(const std::string& text, const CsvColumns& columns) {
    return ReadCsv(WriteFile(directory_, "table.csv", text), columns);
  }
  absl::StatusOr<RowSet> Read(const std::string& text, const std::string& label_column = "") {
    return Read(text, CsvColumns{label_column});
  }

  // Reads a table and expects success.
  RowSet Rows(const std::string& text, const CsvColumns& columns = {}) {
    const absl::StatusOr<RowSet> rows = Read(text, columns);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return rows.value_or(RowSet());
  }

  void ExpectError(const std::string& text, absl::StatusCode code, const std::string& part,
                   const CsvColumns& columns = {}) {
    const absl::Status status = Read(text, columns).status();
    EXPECT_EQ(status.code(), code) << status << "\n" << text;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(part));
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("table.csv: "));
  }
  void ExpectInvalid(const std::string& text, const std::string& part,
                     const CsvColumns& columns = {}) {
    ExpectError(text, absl::StatusCode::kInvalidArgument, part, columns);
  }

  static std::vector<std::string> GetNames(const RowSet& rows) {
    std::vector<std::string> names;
    for (const FeatureColumn& column : rows.columns) names.push_back(column.name);
    return names;
  }

  static CsvColumns WithMissing(CsvColumns::Missing missing, CsvColumns columns = {}) {
    columns.missing = missing;
    return columns;
  }

  const std::string directory_ = NewDirectory();
};

}  // namespace torchps
