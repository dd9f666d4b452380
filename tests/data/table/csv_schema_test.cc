#include <string>

#include "tests/data/table/csv_fixture.h"
#include "torchps/data/table/csv.h"

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsNan;

using Missing = CsvColumns::Missing;

// Reads tables for a model that was trained on another table; the schema describes its columns.
class CsvSchemaTest : public CsvTest {
 protected:
  static CsvColumns Named() {
    CsvColumns columns;
    columns.schema =
        TableSchema{{{"a"}, {"color", {"blue", "red"}}}, "kind", {"lily", "rose"}, 2, {}};
    return columns;
  }
  // The columns of a model trained without a header. The answer is in column 1; column 0 is
  // ignored.
  static CsvColumns Unnamed() {
    CsvColumns columns{"1", {}, {"0"}};
    columns.schema = TableSchema{{{""}, {""}}, "", {}, 3, {}};
    return columns;
  }
  static CsvColumns Regression() {
    CsvColumns columns{"", {"price", "rent"}};
    columns.schema = TableSchema{{{"a"}}, "", {}, 0, {"price", "rent"}};
    return columns;
  }
  static CsvColumns ToPredict(CsvColumns columns) {
    columns.needs_answers = false;
    return columns;
  }
};

TEST_F(CsvSchemaTest, FindsColumnsByNameInAnyOrder) {
  const RowSet rows = Rows("id,kind,color,a\nx1,rose,red,1\nx2,lily,blue,2\n", Named());
  EXPECT_THAT(GetNames(rows), ElementsAre("a", "color"));
  EXPECT_THAT(rows.columns[1].categories, ElementsAre("blue", "red"));
  EXPECT_THAT(rows.values, ElementsAre(1, 1, 2, 0));
  EXPECT_THAT(rows.labels, ElementsAre(1, 0));
  EXPECT_THAT(rows.class_names, ElementsAre("lily", "rose"));
  EXPECT_EQ(rows.label_column, "kind");
  EXPECT_THAT(rows.left_out, ElementsAre("id"));
}

TEST_F(CsvSchemaTest, ListsMissingColumns) {
  ExpectInvalid("a,kind,size\n1,rose,2\n",
                "expected the model's columns, got none named color among a, kind, size", Named());
  ExpectInvalid("A,color,kind\n1,red,rose\n",
                "none named a among A, color, kind (\"A\" differs from \"a\" in upper and lower "
                "case)",
                Named());
  CsvColumns many = Named();
  for (int i = 0; i < 6; ++i) many.schema->columns.push_back({"m" + std::to_string(i)});
  ExpectInvalid("a,kind\n1,rose\n", "none named color, m0, m1, m2, m3 and 2 more among a, kind",
                many);
  ExpectInvalid("a,color\n1,red\n", "expected the answers in column kind, got columns a, color",
                Named());
  ExpectInvalid("a,color,a,kind\n1,red,2,rose\n",
                "expected one column named \"a\", got columns 0 and 2", Named());
  ExpectInvalid("1,red,rose\n2,blue,lily\n",
                "expected a first line with the names of the model's columns (a, color)", Named());
}

TEST_F(CsvSchemaTest, DetectsTheHeaderOfATableWithOneRow) {
  CsvColumns columns;
  columns.schema = TableSchema{{{"0"}, {"1"}}, "2", {}, 3, {}};
  const RowSet rows = Rows("1,0\n7,8\n", ToPredict(columns));
  EXPECT_TRUE(rows.had_header);
  EXPECT_THAT(rows.values, ElementsAre(8, 7));
}

TEST_F(CsvSchemaTest, AnUnknownCategoryIsAnErrorOrIfAllowedNan) {
  const std::string text = "a,color,kind\n1,green,rose\n";
  ExpectInvalid(text,
                "line 2, column 1 (color): expected a category that the model knows (blue, red; "
                "data.csv.unknown_category: true accepts others), got \"green\"",
                Named());
  CsvColumns columns = Named();
  columns.allow_unknown_category = true;
  EXPECT_THAT(Rows(text, columns).values, ElementsAre(1, IsNan()));
}

TEST_F(CsvSchemaTest, RejectsClassesUnknownToTheModel) {
  ExpectInvalid(
      "a,color,kind\n1,red,rose\n2,red,tulip\n",
      "line 3, column 2 (kind): expected a class of the model (lily, rose), got \"tulip\"",
      Named());
  CsvColumns columns = Named();
  columns.schema->class_names = {"-1", "1"};
  EXPECT_THAT(Rows("a,color,kind\n1,red,1.0\n2,red,-1\n", columns).labels, ElementsAre(1, 0));
  columns.schema->class_names = {};
  EXPECT_THAT(Rows("a,color,kind\n1,red,1\n", columns).labels, ElementsAre(1));
  ExpectInvalid("a,color,kind\n1,red,2\n", "a class of the model, a whole number of 0 to 1",
                columns);
}

TEST_F(CsvSchemaTest, APredictionNeedsNoAnswers) {
  for (const std::string text : {"a,color\n1,red\n2,blue\n", "a,color,kind\n1,red,\n2,blue,rose\n",
                                 "kind,a,color\nrose,1,red\ntulip,2,blue\n"}) {
    const RowSet rows = Rows(text, ToPredict(Named()));
    EXPECT_FALSE(rows.has_answers) << text;
    EXPECT_THAT(rows.labels, IsEmpty());
    EXPECT_THAT(rows.values, ElementsAre(1, 1, 2, 0));
    EXPECT_EQ(rows.rows, 2);
  }
  EXPECT_TRUE(Rows("a,color,kind\n1,red,rose\n", ToPredict(Named())).has_answers);
}

TEST_F(CsvSchemaTest, APredictionRejectsMissingValuesInsteadOfDroppingRows) {
  const std::string text = "a,color,kind\n1,red,rose\n,red,rose\n3,blue,\n";
  EXPECT_EQ(Rows(text, WithMissing(Missing::kDropRow, Named())).dropped, 2);
  ExpectInvalid(text, "line 3, column 0 (a): expected a value, not a missing value (a prediction",
                WithMissing(Missing::kDropRow, ToPredict(Named())));
  const RowSet kept = Rows(text, WithMissing(Missing::kKeep, ToPredict(Named())));
  EXPECT_THAT(kept.values, ElementsAre(1, 1, IsNan(), 1, 3, 0));
  EXPECT_EQ(kept.dropped, 0);
}

TEST_F(CsvSchemaTest, FindsTargetColumnsByName) {
  const RowSet rows = Rows("rent,a,price\n1,2,3.3\n", Regression());
  EXPECT_THAT(rows.targets, ElementsAre(3.3, 1));
  EXPECT_THAT(rows.target_columns, ElementsAre("price", "rent"));
  ExpectInvalid("a,price\n1,2\n", "expected the answers in column rent", Regression());
  for (const std::string text :
       {"a,price\n1,2\n", "a,price,rent\n1,2,?\n", "a,price,rent\n1,2,x\n"}) {
    const RowSet predicted = Rows(text, ToPredict(Regression()));
    EXPECT_FALSE(predicted.has_answers) << text;
    EXPECT_THAT(predicted.targets, IsEmpty());
  }
}

TEST_F(CsvSchemaTest, WithoutColumnNamesFindsColumnsByPosition) {
  const RowSet whole = Rows("x1,2,1.5,2.5\n", Unnamed());
  EXPECT_THAT(whole.values, ElementsAre(1.5, 2.5));
  EXPECT_THAT(whole.labels, ElementsAre(2));
  EXPECT_THAT(whole.left_out, ElementsAre("0"));
  const RowSet without_answers = Rows("x1,1.5,2.5\n", ToPredict(Unnamed()));
  EXPECT_THAT(without_answers.values, ElementsAre(1.5, 2.5));
  EXPECT_THAT(without_answers.left_out, ElementsAre("0"));
  EXPECT_FALSE(without_answers.has_answers);
  EXPECT_THAT(Rows("1.5,2.5\n", ToPredict(Unnamed())).values, ElementsAre(1.5, 2.5));
  EXPECT_THAT(Rows("p,q\n1.5,2.5\n", ToPredict(Unnamed())).values, ElementsAre(1.5, 2.5));
  ExpectInvalid("1.5,2.5\n", "expected 4 columns with the answers, got 2", Unnamed());
  ExpectInvalid("1,2,3,4,5\n",
                "expected 2 columns (the model's features), or 4 with the answers as in its "
                "training file, got 5",
                Unnamed());
}

}  // namespace
}  // namespace torchps
