#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/tools/testing.h"
#include "torchps/tools/report/report_command.h"
#include "torchps/tools/report/report_text.h"

namespace torchps {
namespace {

using Json = nlohmann::json;

Json Written(const Report& report) { return Json::parse(ReportJson(report)); }

TEST(ReportJsonTest, Int64IsAnExactNumber) {
  Report report;
  report.add_slots()->set_incarnation(std::numeric_limits<uint64_t>::max());
  report.mutable_versions()->set_min(std::numeric_limits<int64_t>::min());
  report.mutable_lag()->add_histogram((int64_t{1} << 53) + 1);
  const Json json = Written(report);
  EXPECT_EQ(json["slots"][0]["incarnation"], std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(json["versions"]["min"], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(json["lag"]["histogram"], Json::array({(int64_t{1} << 53) + 1}));
  EXPECT_TRUE(json["steps"].is_number_integer());
}

TEST(ReportJsonTest, DoublesHaveSixDigitsOrAreNull) {
  Report report;
  report.set_wall_seconds(1.23456789);
  report.mutable_result()->set_accuracy(std::numeric_limits<double>::quiet_NaN());
  report.mutable_result()->set_loss(std::numeric_limits<double>::infinity());
  report.set_name("NaN");
  const Json json = Written(report);
  EXPECT_EQ(json["wall_seconds"], 1.23457);
  EXPECT_EQ(json["result"]["accuracy"], nullptr);
  EXPECT_EQ(json["result"]["loss"], nullptr);
  EXPECT_EQ(json["name"], "NaN") << "a text is not a number";
}

TEST(ReportJsonTest, AbsentFieldsFollowTheSchema) {
  Report report;
  report.add_epochs()->mutable_accounting()->set_epoch(3);
  report.mutable_reconciles()->mutable_rounds()->set_not_judged("a reason");
  const Json json = Written(report);
  EXPECT_EQ(json.at("result"), nullptr);
  EXPECT_EQ(json["epochs"][0].at("test"), nullptr);
  EXPECT_EQ(json["reconciles"]["rounds"], Json::parse(R"({"holds": null, "expected": 0,
      "actual": 0, "not_judged": "a reason"})"));
  EXPECT_FALSE(json["reconciles"].contains("kept_blocks"));
  for (const char* name :
       {"checkpoint", "resumed_checkpoint", "stopped", "rolled_back", "restarts"}) {
    EXPECT_FALSE(json.contains(name)) << name;
  }
}

TEST(ReportJsonTest, KeepsPresentFieldsThatAreZeroOrEmpty) {
  Report report;
  report.set_resumed_checkpoint(0);
  report.mutable_reconciles()->mutable_lag()->set_holds(false);
  report.add_servers()->set_came_back(false);
  const Json json = Written(report);
  EXPECT_EQ(json["resumed_checkpoint"], 0);
  EXPECT_EQ(json["reconciles"]["lag"]["holds"], false);
  EXPECT_EQ(json["servers"][0]["came_back"], false);
  EXPECT_EQ(json["epochs"], Json::array());
  EXPECT_EQ(json["phase"], "");
}

TEST(ReportJsonTest, AServerThatDoesNotAnswerHasOnlyAnError) {
  Report report;
  report.add_servers()->set_error("connection refused");
  EXPECT_EQ(Written(report)["servers"][0],
            Json({{"index", 0}, {"address", ""}, {"error", "connection refused"}}));
}

TEST(ReportJsonTest, PushedBlocksListEachVerdict) {
  Report report;
  Json expected = {{"applied", 0}};
  const auto& fields = *VerdictCounts::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    VerdictCounts::GetReflection()->SetUInt64(report.mutable_pushed_blocks()->mutable_verdicts(),
                                              fields.field(i), 10 + static_cast<uint64_t>(i));
    expected[fields.field(i)->name()] = 10 + i;
  }
  EXPECT_EQ(Written(report)["pushed_blocks"], expected);
}

TEST(ReportJsonTest, WritesTheJobAsProtobufDoes) {
  Report report;
  report.mutable_job()->mutable_data()->set_train_samples(1000);
  const Json json = Written(report);
  EXPECT_EQ(json["job"]["data"]["train_samples"], "1000");
}

TEST(ReportJsonTest, ToleratesInvalidUtf8) {
  Report report;
  report.add_servers()->set_error("bad \xff byte");
  EXPECT_EQ(Written(report)["servers"][0]["error"].get<std::string>().substr(0, 4), "bad ");
}

TEST(ReportJsonTest, ReadsBackAWrittenReport) {
  const std::string text = ReadWholeFile("tests/tools/testdata/report.json");
  const absl::StatusOr<Report> report = ParseReportJson(text);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(ReportJson(*report), text);
  EXPECT_EQ(ReportText(*report), ReadWholeFile("tests/tools/testdata/report.txt"));
}

TEST(ReportJsonTest, ReadsNonFiniteNumbersAsNan) {
  Report report;
  report.mutable_result()->set_loss(std::numeric_limits<double>::infinity());
  MetricValue& metric = *report.mutable_result()->add_metrics();
  metric.set_name("f1");
  metric.set_value(std::numeric_limits<double>::quiet_NaN());
  const Report read = *ParseReportJson(ReportJson(report));
  EXPECT_TRUE(std::isnan(read.result().loss()));
  EXPECT_TRUE(std::isnan(read.result().metrics(0).value()));
  EXPECT_FALSE(read.result().has_accuracy());
}

TEST(ReportJsonTest, RejectsTextThatIsNotAReport) {
  for (const char* text : {"", "5", "{}", "[1]", R"({"schema": "x"})"}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseReportJson(text).status())) << text;
  }
}

TEST(WriteFileAtomicallyTest, ReplacesTheOldFile) {
  const TestFolder folder;
  const std::string path = folder.WriteFile("report.json", "old");
  EXPECT_TRUE(WriteFileAtomically(path, "new").ok());
  EXPECT_EQ(ReadWholeFile(path), "new");
}

TEST(WriteFileAtomicallyTest, ErrorNamesAMissingFolder) {
  const absl::Status status = WriteFileAtomically("/nowhere/report.json", "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "cannot write /nowhere/report.json: No such file or directory");
}

}  // namespace
}  // namespace torchps
