// Tests the datasets as seen by models, for each source.

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/data/image/encode_images.h"
#include "tests/data/test_files.h"
#include "torchps/data/data_registry.h"
#include "torchps/data/dataset.h"
#include "torchps/data/image_dataset.h"
#include "torchps/data/preprocessing.h"
#include "torchps/data/tensor_dataset.h"
#include "torchps/data/text_dataset.h"
#include "torchps/job/job_spec.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

JobSpec Job(const std::string& text) {
  JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      text + " optimizer { sgd {} learning_rate: 0.1 }", &job));
  absl::StatusOr<JobSpec> normalized = NormalizeJobSpec(job);
  EXPECT_TRUE(normalized.ok()) << normalized.status();
  return *normalized;
}

std::string IdxImages(int count, int height, int width) {
  std::string bytes("\x00\x00\x08\x03\x00\x00\x00", 7);
  bytes += static_cast<char>(count);
  bytes += std::string("\x00\x00\x00", 3) + static_cast<char>(height);
  bytes += std::string("\x00\x00\x00", 3) + static_cast<char>(width);
  for (int i = 0; i < count * height * width; ++i) bytes += static_cast<char>(i * 37);
  return bytes;
}

std::string IdxLabels(const std::string& labels) {
  return std::string("\x00\x00\x08\x01\x00\x00\x00", 7) + static_cast<char>(labels.size()) + labels;
}

std::string IdxDirectory(const std::string& train_labels, const std::string& test_labels) {
  const std::string directory = NewDirectory();
  WriteFile(directory, "train-images-idx3-ubyte.gz", Gzip(IdxImages(train_labels.size(), 4, 5)));
  WriteFile(directory, "train-labels-idx1-ubyte.gz", Gzip(IdxLabels(train_labels)));
  WriteFile(directory, "t10k-images-idx3-ubyte", IdxImages(test_labels.size(), 4, 5));
  WriteFile(directory, "t10k-labels-idx1-ubyte", IdxLabels(test_labels));
  return directory;
}

std::string CifarDirectory() {
  const std::string directory = NewDirectory();
  for (const std::string name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                 "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    std::string bytes;
    for (int i = 0; i < 2 * 3073; ++i) bytes += static_cast<char>(i % 3073 == 0 ? i / 3073 : i * 7);
    WriteFile(directory, name, bytes);
  }
  return directory;
}

std::string CsvFile() {
  std::string text = "a,b,constant,kind\n";
  for (int i = 0; i < 40; ++i) {
    text += std::to_string(i) + "," + std::to_string(100 - i * i) + ",7," + std::to_string(i % 3) +
            "\n";
  }
  return WriteFile(NewDirectory(), "table.csv", text);
}

std::string ImageDirectory() {
  const std::string directory = NewDirectory();
  for (const std::string part : {"train", "test"}) {
    for (int label = 0; label < 3; ++label) {
      const std::string folder = directory + "/" + part + "/class" + std::to_string(label);
      std::filesystem::create_directories(folder);
      for (int i = 0; i < 4; ++i) {
        const auto pixels = Flat(6 + i, 9, {uint8_t(80 * label), uint8_t(20 * i), 7});
        const std::string name = std::to_string(i);
        if (i % 2 == 0) WriteFile(folder, name + ".png", EncodePng(pixels, 6 + i, 9, 3));
        if (i % 2 == 1) WriteFile(folder, name + ".jpg", EncodeJpeg(pixels, 6 + i, 9, 3));
      }
    }
  }
  return directory;
}

// Writes train.bin and val.bin with tokens from 0 to 40, 16 bits each. Returns their directory.
std::string TokenDirectory() {
  const std::string directory = NewDirectory();
  for (const auto& [name, count] : {std::pair("train.bin", 120), std::pair("val.bin", 45)}) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes += std::string{static_cast<char>(i * 7 % 41), '\0'};
    WriteFile(directory, name, bytes);
  }
  return directory;
}

struct Source {
  std::string name;
  std::string job;
  std::string (*path)();
};

// Tests the properties required of each source's datasets.
class EverySource : public ::testing::TestWithParam<Source> {
 protected:
  const DataSource source_ = *OpenData(Job(GetParam().job), GetParam().path());
};

TEST_P(EverySource, HasTrainingAndTestData) {
  EXPECT_GT(source_.train->size(), 0);
  ASSERT_NE(source_.test, nullptr);
  EXPECT_GT(source_.test->size(), 0);
  EXPECT_THAT(source_.description, HasSubstr(std::to_string(source_.train->size())));
  EXPECT_THAT(source_.description, HasSubstr(std::to_string(source_.test->size())));
  EXPECT_GE(source_.train->shape().classes, 2);
}

TEST_P(EverySource, ReturnsRowsInTheRequestedOrder) {
  for (const auto& dataset : {source_.train, source_.test}) {
    const int64_t last = dataset->size() - 1;
    const Batch batch = *dataset->Get({last, 0, last});
    const Batch first = *dataset->Get({0});
    const Batch end = *dataset->Get({last});
    ASSERT_EQ(batch.input.size(0), 3);
    ASSERT_EQ(batch.target.size(0), 3);
    EXPECT_EQ(batch.target.scalar_type(), torch::kInt64);
    EXPECT_TRUE(batch.input[0].equal(end.input[0]));
    EXPECT_TRUE(batch.input[1].equal(first.input[0]));
    EXPECT_TRUE(batch.input[2].equal(end.input[0]));
    EXPECT_TRUE(batch.target[1].equal(first.target[0]));
    EXPECT_LT(batch.target.max().item<int64_t>(), dataset->shape().classes);
    EXPECT_GE(batch.target.min().item<int64_t>(), 0);
  }
}

TEST_P(EverySource, ChangingABatchDoesNotChangeTheDataset) {
  Batch changed = *source_.train->Get({0});
  const Batch before = *source_.train->Get({0});
  changed.input.zero_();
  changed.target.fill_(99);
  const Batch after = *source_.train->Get({0});
  EXPECT_TRUE(before.input.equal(after.input));
  EXPECT_TRUE(before.target.equal(after.target));
}

TEST_P(EverySource, TheSameJobGivesTheSameSamples) {
  const DataSource again = *OpenData(Job(GetParam().job), GetParam().path());
  ASSERT_EQ(again.train->size(), source_.train->size());
  std::vector<int64_t> all(again.train->size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_TRUE(again.train->Get(all)->input.equal(source_.train->Get(all)->input));
  EXPECT_TRUE(again.train->Get(all)->target.equal(source_.train->Get(all)->target));
}

TEST_P(EverySource, LimitsTheNumberOfSamples) {
  JobSpec job = Job(GetParam().job);
  job.mutable_data()->set_train_samples(3);
  job.mutable_data()->set_test_samples(1);
  const DataSource few = *OpenData(job, GetParam().path());
  EXPECT_EQ(few.train->size(), 3);
  EXPECT_EQ(few.test->size(), 1);
  EXPECT_EQ(few.train->shape().classes, source_.train->shape().classes);
}

TEST_P(EverySource, OpensNoTestSetWithoutEvaluation) {
  const auto source =
      OpenData(Job(GetParam().job + " training { evaluate: false }"), GetParam().path());
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->test, nullptr);
}

TEST_P(EverySource, TheSameDataHasTheSameFingerprint) {
  const DataSource again = *OpenData(Job(GetParam().job), GetParam().path());
  const DataFingerprint fingerprint = GetFingerprint(source_);
  EXPECT_NE(fingerprint.train, 0u);
  EXPECT_NE(fingerprint.test, 0u);
  EXPECT_EQ(GetFingerprint(again).number(), fingerprint.number());
}

INSTANTIATE_TEST_SUITE_P(
    DatasetsTest, EverySource,
    ::testing::Values(
        Source{"digits", "data { source: 'digits' train_samples: 40 test_samples: 20 }",
               [] { return std::string(); }},
        Source{"idx", "data { source: 'idx' }",
               [] { return IdxDirectory(std::string("\x00\x01\x02\x03\x04", 5), "\x01\x02"); }},
        Source{"cifar10", "data { source: 'cifar10' }", [] { return CifarDirectory(); }},
        Source{"images", "data { source: 'images' images { height: 4 width: 5 } }",
               [] { return ImageDirectory(); }},
        Source{"tokens", "data { source: 'tokens' } model { transformer { context: 8 } }",
               [] { return TokenDirectory(); }},
        Source{"csv", "data { source: 'csv' }", [] { return CsvFile(); }},
        Source{"generated_text", "data { source: 'text' } model { transformer { context: 16 } }",
               [] { return std::string(); }},
        Source{"text", "data { source: 'text' } model { transformer { context: 5 } }",
               [] { return WriteFile(NewDirectory(), "t", std::string(333, 'x') + "end"); }}),
    [](const auto& info) { return info.param.name; });

TEST(ImageDatasetTest, NormalizesEachChannel) {
  const DataSource source = *OpenData(Job("data { source: 'cifar10' }"), CifarDirectory());
  std::vector<int64_t> all(source.train->size());
  std::iota(all.begin(), all.end(), 0);
  const torch::Tensor input = source.train->Get(all)->input;
  EXPECT_EQ(input.sizes(), (std::vector<int64_t>{10, 3, 32, 32}));
  EXPECT_LT(input.mean({0, 2, 3}).abs().max().item<float>(), 1e-4);
  EXPECT_LT((input.std({0, 2, 3}) - 1).abs().max().item<float>(), 1e-3);
}

TEST(ImageDatasetTest, HandlesAConstantChannel) {
  ImageSet images;
  images.channels = 2;
  images.height = 1;
  images.width = 2;
  images.pixels = {0, 255, 51, 51};  // the second channel is constant
  images.labels = {3};
  const Normalization normalization = MeasureNormalization(images);
  EXPECT_FLOAT_EQ(normalization.mean[0], 0.5f);
  EXPECT_FLOAT_EQ(normalization.deviation[0], 0.5f);
  EXPECT_FLOAT_EQ(normalization.mean[1], 0.2f);
  EXPECT_FLOAT_EQ(normalization.deviation[1], 1.0f);
  const Batch batch = *ImageDataset(images, normalization, 10).Get({0});
  EXPECT_TRUE(batch.input.flatten().allclose(torch::tensor({-1.0f, 1.0f, 0.0f, 0.0f})));
  EXPECT_EQ(batch.target.item<int64_t>(), 3);
}

TEST(FingerprintTest, TablesOfTheSameLengthHaveDifferentFingerprints) {
  const JobSpec job = Job("data { source: 'csv' }");
  const std::string rows = "1,0\n2,1\n3,0\n4,1\n5,0\n6,1\n7,0\n8,1\n9,0\n10,1\n";
  const auto of = [&](const std::string& text) {
    return GetFingerprint(*OpenData(job, WriteFile(NewDirectory(), "t.csv", "a,kind\n" + text)));
  };
  const DataFingerprint here = of(rows);
  EXPECT_EQ(of(rows).number(), here.number());
  std::string mirrored;
  for (int row = 10; row > 0; --row) mirrored += absl::StrCat(row, ",", 1 - row % 2, "\n");
  EXPECT_NE(of(mirrored).train, here.train) << "the same rows in another order";
  EXPECT_NE(of("0" + rows.substr(1)).train, here.train) << "standardised by another mean";
}

TEST(FingerprintTest, IsZeroForADatasetWithoutAFingerprint) {
  const TextDataset text("abcdefghijk", 3, 0);
  DataSource source;
  EXPECT_EQ(GetFingerprint(source).number(), 0u);
  source.train = std::make_shared<TextDataset>(text);
  EXPECT_EQ(GetFingerprint(source).train, text.Fingerprint());
  EXPECT_EQ(GetFingerprint(source).test, 0u);
  class Random final : public Dataset {
   public:
    int64_t size() const override { return 3; }
    absl::StatusOr<Batch> Get(absl::Span<const int64_t>) const override {
      ADD_FAILURE() << "not requested";
      return Batch();
    }
  };
  source.train = std::make_shared<Random>();
  EXPECT_EQ(GetFingerprint(source).train, 0u);
}

TEST(RowDatasetTest, StandardizesByTheTrainingRows) {
  RowSet table;
  table.columns = {{"a"}, {"b"}};
  table.values = {1, 5, 3, 5, 1000, 9};
  table.labels = {0, 1, 1};
  const RowDataset all(table, {0, 1, 2}, MeasurePreprocessing(table, {0, 1}));
  const torch::Tensor input = all.Get({0, 1, 2})->input;
  EXPECT_TRUE(input.allclose(torch::tensor({{-1.0f, 0.0f}, {1.0f, 0.0f}, {998.0f, 4.0f}})));
}

TEST(RowDatasetTest, TheSeedDecidesWhichRowsAreTestRows) {
  const std::string path = CsvFile();
  std::vector<std::vector<float>> test_rows;
  for (const std::string seed : {"1", "2"}) {
    const DataSource source = *OpenData(
        Job("seed: " + seed + " data { source: 'csv' csv { test_fraction: 0.25 } }"), path);
    EXPECT_EQ(source.train->size(), 30);
    EXPECT_EQ(source.test->size(), 10);
    // Column a holds the row number. Standardization keeps the order and the equal gaps, which
    // shows that each row is in one of the two parts.
    std::vector<float> column;
    for (const auto& dataset : {source.train, source.test}) {
      for (int64_t i = 0; i < dataset->size(); ++i) {
        column.push_back(dataset->Get({i})->input[0][0].item<float>());
      }
    }
    test_rows.emplace_back(column.begin() + 30, column.end());
    std::sort(column.begin(), column.end());
    for (int i = 0; i < 39; ++i) {
      EXPECT_NEAR(column[i + 1] - column[i], (column[39] - column[0]) / 39, 1e-5);
    }
  }
  EXPECT_NE(test_rows[0], test_rows[1]);
}

TEST(RowDatasetTest, ReplacesAMissingValueByTheTrainingMean) {
  const double nan = std::nan("");
  RowSet table;
  table.columns = {{"a"}, {"b"}};
  table.values = {1, nan, nan, 5, 3, nan, 1000, 9};
  table.labels = {0, 1, 1, 0};
  const Preprocessing preprocessing = MeasurePreprocessing(table, {0, 1, 2});
  EXPECT_EQ(preprocessing.input_mean, (std::vector<double>{2, 5}));
  EXPECT_EQ(preprocessing.input_deviation, (std::vector<double>{1, 1}));
  const RowDataset all(table, {0, 1, 2, 3}, preprocessing);
  const torch::Tensor input = all.Get({0, 1, 2, 3})->input;
  EXPECT_TRUE(
      input.allclose(torch::tensor({{-1.0f, 0.0f}, {0.0f, 0.0f}, {1.0f, 0.0f}, {998.0f, 4.0f}})));
}

TEST(RowDatasetTest, TheMetadataListsTheClassNames) {
  std::string text = "a,kind\n";
  for (int i = 0; i < 30; ++i) text += std::to_string(i) + (i % 2 ? ",setosa\n" : ",\"a\"\"b\"\n");
  const DataSource source =
      *OpenData(Job("data { source: 'csv' }"), WriteFile(NewDirectory(), "iris.csv", text));
  EXPECT_EQ(source.preprocessing.class_names, (std::vector<std::string>{"a\"b", "setosa"}));
  EXPECT_EQ(source.Metadata().at("classes"), R"(["a\"b","setosa"])");
  EXPECT_EQ(source.train->shape().classes, 2);
  EXPECT_EQ(OpenData(Job("data { source: 'csv' }"), CsvFile())->Metadata().count("classes"), 0u);
}

TEST(RowDatasetTest, ScalesTargetsAndConvertsThemBack) {
  const DataSource source = *OpenData(
      Job("data { source: 'csv' csv { target_column: 'kind' target_column: 'a' } }"), CsvFile());
  const DataShape shape = source.train->shape();
  EXPECT_EQ(shape.classes, 0);
  EXPECT_EQ(shape.targets, 2);
  EXPECT_EQ(shape.features, 2);
  EXPECT_EQ(source.Metadata().at("target_columns"), R"(["kind","a"])");
  EXPECT_THAT(source.description, HasSubstr("2 to predict, 2 features"));
  std::vector<int64_t> all(source.train->size());
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = *source.train->Get(all);
  EXPECT_EQ(batch.target.sizes(), (std::vector<int64_t>{36, 2}));
  EXPECT_EQ(batch.target.scalar_type(), torch::kFloat32);
  EXPECT_LT(batch.target.mean(0).abs().max().item<float>(), 1e-6);
  EXPECT_TRUE(batch.target.square().mean(0).allclose(torch::ones(2)));
  // The column "kind" is column a modulo 3.
  const torch::Tensor numbers = source.preprocessing.Numbers(batch.target).round();
  EXPECT_TRUE(numbers.select(1, 1).remainder(3).equal(numbers.select(1, 0)));
  EXPECT_EQ(source.train->Get({5})->target.size(0), 1);
}

TEST(TokenDatasetTest, TargetsAreTheNextTokens) {
  const std::string job = "model { transformer { context: 8 } } data { source: 'tokens' ";
  const DataSource source = *OpenData(Job(job + "}"), TokenDirectory());
  EXPECT_EQ(source.train->size(), 14);  // 119 tokens have a successor: 14 samples of 8
  EXPECT_EQ(source.test->size(), 5);
  EXPECT_EQ(source.train->shape().classes, 41);
  const Batch batch = *source.train->Get({1});
  EXPECT_EQ(batch.input[0][0].item<int64_t>(), 8 * 7 % 41);
  EXPECT_TRUE(batch.input[0].slice(0, 1).equal(batch.target[0].slice(0, 0, 7)));
  const DataSource wide = *OpenData(Job(job + "tokens { vocabulary: 50304 } }"), TokenDirectory());
  EXPECT_EQ(wide.train->shape().classes, 50304);
}

TEST(TokenDatasetTest, ErrorNamesTheTokenBeyondTheVocabulary) {
  const DataSource source = *OpenData(Job("model { transformer { context: 8 } } data { source: "
                                          "'tokens' tokens { vocabulary: 40 } }"),
                                      TokenDirectory());
  const auto batch = source.train->Get({0, 1, 2, 3, 4});
  EXPECT_EQ(batch.status().code(), absl::StatusCode::kDataLoss);
  // Token i is 7 * i modulo 41, so token 35 is 40.
  EXPECT_THAT(std::string(batch.status().message()),
              HasSubstr("train.bin: expected tokens of 0 to 39, got 40 at token 35"));
}

TEST(ImageFolderDatasetTest, ResizesAndNormalizesImages) {
  const DataSource source =
      *OpenData(Job("data { source: 'images' images { height: 4 width: 5 } }"), ImageDirectory());
  EXPECT_EQ(source.Metadata().at("classes"), R"(["class0","class1","class2"])");
  std::vector<int64_t> all(source.train->size());
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = *source.train->Get(all);
  EXPECT_EQ(batch.input.sizes(), (std::vector<int64_t>{12, 3, 4, 5}));
  EXPECT_TRUE(
      batch.target.equal(torch::tensor({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, torch::kInt64)));
  EXPECT_LT(batch.input.mean({0, 2, 3}).slice(0, 0, 2).abs().max().item<float>(), 1e-4);
  const DataSource grey =
      *OpenData(Job("data { source: 'images' images { channels: 1 } }"), ImageDirectory());
  EXPECT_EQ(grey.train->Get({0})->input.sizes(), (std::vector<int64_t>{1, 1, 64, 64}));
}

TEST(ImageFolderDatasetTest, ErrorNamesTheBrokenFileOfABatch) {
  const std::string directory = ImageDirectory();
  const DataSource source =
      *OpenData(Job("data { source: 'images' images { height: 4 } }"), directory);
  WriteFile(directory + "/train/class1", "2.png", "\x89PNG\r\n\x1a\nbroken");
  EXPECT_TRUE(source.train->Get({0, 1}).ok());
  const auto batch = source.train->Get({0, 6});
  EXPECT_EQ(batch.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(batch.status().message()), HasSubstr("/train/class1/2.png: expected"));
}

TEST(TextDatasetTest, TargetsAreTheNextBytes) {
  const TextDataset text("abcdefg\xff", 3, 0);
  EXPECT_EQ(text.size(), 2);  // abc and def, with targets bcd and efg; the last byte is unused
  const Batch batch = *text.Get({0, 1});
  EXPECT_TRUE(batch.input.equal(torch::tensor({{'a', 'b', 'c'}, {'d', 'e', 'f'}}, torch::kInt64)));
  EXPECT_TRUE(batch.target.equal(torch::tensor({{'b', 'c', 'd'}, {'e', 'f', 'g'}}, torch::kInt64)));
}

TEST(TextDatasetTest, BytesAboveAsciiStayBelow256) {
  const Batch batch = *TextDataset("\x80\xff", 1, 0).Get({0});
  EXPECT_EQ(batch.input.item<int64_t>(), 128);
  EXPECT_EQ(batch.target.item<int64_t>(), 255);
}

void ExpectError(const std::string& job, const std::string& path, absl::StatusCode code,
                 const std::string& part) {
  const auto source = OpenData(Job(job), path);
  EXPECT_EQ(source.status().code(), code) << source.status();
  EXPECT_THAT(std::string(source.status().message()), HasSubstr(part));
}

TEST(DataRegistryTest, ListsTheKnownSources) {
  ExpectError("data { source: 'imagenet' }", "", absl::StatusCode::kInvalidArgument,
              "digits, idx, cifar10, images, csv, text or tokens, got \"imagenet\"");
}

TEST(DataRegistryTest, ThePathOfTheFlagOverridesThePathOfTheJob) {
  ExpectError("data { source: 'idx' path: '/of/the/job' }", "", absl::StatusCode::kNotFound,
              "/of/the/job");
  ExpectError("data { source: 'idx' path: '/of/the/job' }", "/of/the/flag",
              absl::StatusCode::kNotFound, "/of/the/flag");
}

TEST(DataRegistryTest, ErrorNamesTheMissingPathField) {
  setenv("TORCHPS_CACHE", NewDirectory().c_str(), /*overwrite=*/1);
  for (const std::string source : {"idx", "cifar10", "csv", "images"}) {
    ExpectError("data { source: '" + source + "' }", "", absl::StatusCode::kInvalidArgument,
                "data.path");
  }
}

TEST(DataRegistryTest, WithoutAPathIdxReadsTheCachedMnist) {
  const std::string cache = NewDirectory();
  std::filesystem::rename(IdxDirectory(std::string("\x00\x01", 2), "\x01"), cache + "/mnist");
  setenv("TORCHPS_CACHE", cache.c_str(), /*overwrite=*/1);
  const absl::StatusOr<DataSource> source = OpenData(Job("data { source: 'idx' }"), "");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT(source->description, HasSubstr(cache + "/mnist"));
}

TEST(DataRegistryTest, DigitsRefuseAPath) {
  for (const DataUse use : {TRAINING, EVALUATION}) {
    JobSpec job = Job("data { source: 'digits' }");
    job.mutable_data()->set_use(use);
    const absl::Status refused = OpenData(job, "/some/images").status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("does not read files, got data.path /some/images"));
  }
}

TEST(DataRegistryTest, RejectsATestLabelMissingFromTraining) {
  ExpectError("data { source: 'idx' }", IdxDirectory(std::string("\x00\x01", 2), "\x02"),
              absl::StatusCode::kInvalidArgument, "expected test labels of 0 to 1");
}

TEST(DataRegistryTest, RejectsTestImagesOfAnotherSize) {
  const std::string directory = IdxDirectory("\x01\x02", "\x01");
  WriteFile(directory, "t10k-images-idx3-ubyte", IdxImages(1, 5, 4));
  ExpectError("data { source: 'idx' }", directory, absl::StatusCode::kInvalidArgument,
              "expected test images of 4x5 pixels");
}

// Returns `job` with the preprocessing of a model trained on `source`. Data opened with it is for
// `use`.
JobSpec JobOfModel(JobSpec job, const DataSource& source, DataUse use) {
  SetPreprocessing(source.Metadata(), &job);
  job.mutable_data()->set_use(use);
  return job;
}

torch::Tensor GetInputs(const Dataset& data) {
  std::vector<int64_t> all(data.size());
  std::iota(all.begin(), all.end(), 0);
  return data.Get(all)->input;
}

TEST(PreprocessingTest, ReadingBackTheMetadataLosesNothing) {
  Preprocessing table;
  table.columns = {{"a, b"}, {"colour", {"blue", "r\"ed"}}, {"c"}};
  table.input_mean = {1.0 / 3, 0, -1e300};
  table.input_deviation = {0.1, 1, 1e-300};
  table.missing_as_mean = true;
  table.classes = 7;
  table.class_names = {"x", "y,z"};
  table.label_column = "kind";
  table.training_data = 4000000000u;
  const Preprocessing read = *Preprocessing::FromMetadata(table.ToMetadata());
  EXPECT_EQ(read.ToMetadata(), table.ToMetadata());
  EXPECT_EQ(read.input_mean, table.input_mean);
  EXPECT_EQ(read.columns[1].categories, table.columns[1].categories);
  EXPECT_EQ(read.features(), 4);
  Preprocessing::Metadata damaged = table.ToMetadata();
  damaged["input_mean"] = "[1, 2]";
  EXPECT_THAT(std::string(Preprocessing::FromMetadata(damaged).status().message()),
              HasSubstr("input_mean: expected a list of 3 numbers"));
}

TEST(PreprocessingTest, EncodesACategoryAsOneHot) {
  Preprocessing table;
  table.columns = {{"colour", {"blue", "red"}}, {"a"}};
  table.input_mean = {0, 10};
  table.input_deviation = {1, 2};
  const double nan = std::nan("");
  const torch::Tensor raw = torch::tensor({{1.0, 14.0}, {nan, nan}}, torch::kFloat64);
  EXPECT_TRUE(table.Input(raw).equal(torch::tensor({{0.0f, 1.0f, 2.0f}, {0.0f, 0.0f, 0.0f}})));
}

TEST(PreprocessingTest, ScalesAnotherTableLikeTheTrainingTable) {
  const JobSpec job = Job("data { source: 'csv' }");
  const DataSource trained = *OpenData(job, CsvFile());
  const JobSpec use = JobOfModel(job, trained, EVALUATION);
  // The new table has the columns in another order and one column more, and its rows lack one
  // class.
  std::string text = "kind,id,b,a,constant\n";
  for (int i = 0; i < 9; ++i)
    text += absl::StrCat(i % 2, ",x", i, ",", 100 - i * i, ",", i, ",7\n");
  const DataSource other = *OpenData(use, WriteFile(NewDirectory(), "other.csv", text));
  EXPECT_EQ(other.test->size(), 9);
  EXPECT_EQ(other.test->shape().classes, 3);
  const torch::Tensor expected =
      trained.preprocessing.Input(torch::tensor({{4.0, 84.0, 7.0}}, torch::kFloat64));
  EXPECT_TRUE(GetInputs(*other.test).slice(0, 4, 5).equal(expected));
  EXPECT_THAT(other.test_description, HasSubstr("all rows of"));
}

TEST(PreprocessingTest, CountsRowsDroppedByAnEvaluation) {
  const JobSpec job = Job("data { source: 'csv' csv { missing: DROP_ROW } }");
  const DataSource trained = *OpenData(job, CsvFile());
  const std::string path =
      WriteFile(NewDirectory(), "other.csv", "a,b,constant,kind\n1,,7,1\n2,3,7,1\n3,4,7,\n");
  const DataSource other = *OpenData(JobOfModel(job, trained, EVALUATION), path);
  EXPECT_EQ(other.test->size(), 1);
  EXPECT_EQ(other.test_description, "all rows of " + path + " but 2 with a missing value");
}

TEST(PreprocessingTest, AnEvaluationOfTheTrainingTableUsesItsTestPart) {
  const std::string path = CsvFile();
  const JobSpec job = Job("data { source: 'csv' }");
  const DataSource trained = *OpenData(job, path);
  const DataSource again = *OpenData(JobOfModel(job, trained, EVALUATION), path);
  EXPECT_TRUE(GetInputs(*again.test).equal(GetInputs(*trained.test)));
  EXPECT_THAT(again.test_description, HasSubstr("the test part of"));
}

TEST(PreprocessingTest, APredictionReadsAllRowsInFileOrder) {
  const JobSpec job = Job("data { source: 'csv' }");
  const DataSource trained = *OpenData(job, CsvFile());
  const DataSource fresh =
      *OpenData(JobOfModel(job, trained, PREDICTION),
                WriteFile(NewDirectory(), "new.csv", "a,b,constant\n3,1,7\n1,2,7\n2,3,7\n"));
  const Batch batch = *fresh.test->Get({0, 1, 2});
  EXPECT_FALSE(batch.target.defined());
  EXPECT_TRUE(batch.input.equal(trained.preprocessing.Input(
      torch::tensor({{3.0, 1.0, 7.0}, {1.0, 2.0, 7.0}, {2.0, 3.0, 7.0}}, torch::kFloat64))));
}

TEST(PreprocessingTest, ScalesTestImagesLikeTheTrainingImages) {
  const JobSpec job = Job("data { source: 'idx' }");
  const std::string bright = IdxDirectory({0, 1, 2}, {2, 1});
  const DataSource trained = *OpenData(job, bright);
  const JobSpec use = JobOfModel(job, trained, EVALUATION);
  // `dark` has the same test images, and black training images.
  const std::string dark = IdxDirectory({0, 1, 2}, {2, 1});
  std::string black = IdxImages(3, 4, 5);
  std::fill(black.begin() + 16, black.end(), '\0');
  WriteFile(dark, "train-images-idx3-ubyte.gz", Gzip(black));
  EXPECT_TRUE(GetInputs(*OpenData(use, dark)->test).equal(GetInputs(*trained.test)));
  // Without training images the result is the same.
  std::filesystem::remove(dark + "/train-images-idx3-ubyte.gz");
  EXPECT_TRUE(GetInputs(*OpenData(use, dark)->test).equal(GetInputs(*trained.test)));
  const JobSpec predict = JobOfModel(job, trained, PREDICTION);
  const DataSource fresh = *OpenData(predict, dark + "/t10k-images-idx3-ubyte");
  EXPECT_FALSE(fresh.test->Get({0})->target.defined());
  EXPECT_TRUE(GetInputs(*fresh.test).equal(GetInputs(*trained.test)));
}

TEST(PreprocessingTest, PredictsImagesWithoutClassFolders) {
  const JobSpec job = Job("data { source: 'images' images { height: 4 width: 5 } }");
  const std::string directory = ImageDirectory();
  const DataSource trained = *OpenData(job, directory);
  const DataSource fresh =
      *OpenData(JobOfModel(job, trained, PREDICTION), directory + "/test/class1");
  EXPECT_EQ(fresh.sample_names, (std::vector<std::string>{"0.png", "1.jpg", "2.png", "3.jpg"}));
  EXPECT_TRUE(GetInputs(*fresh.test).equal(GetInputs(*trained.test).slice(0, 4, 8)));
  // Without the folder class0, the other two classes keep their numbers.
  std::filesystem::remove_all(directory + "/test/class0");
  const DataSource some = *OpenData(JobOfModel(job, trained, EVALUATION), directory);
  EXPECT_TRUE(some.test->Get({0, 7})->target.equal(torch::tensor({1, 2}, torch::kInt64)));
}

TEST(PreprocessingTest, AnEvaluationOfAnotherTextUsesAllOfIt) {
  const JobSpec job = Job("data { source: 'text' } model { transformer { context: 16 } }");
  const DataSource trained = *OpenData(job);
  EXPECT_EQ(OpenData(JobOfModel(job, trained, EVALUATION))->test->size(), trained.test->size());
  const std::string text = WriteFile(NewDirectory(), "t", std::string(33, 'x'));
  EXPECT_EQ(OpenData(JobOfModel(job, trained, EVALUATION), text)->test->size(), 2);
}

TEST(PreprocessingTest, RefusesToOpenATableWithTheMetadataOfImages) {
  const JobSpec images = Job("data { source: 'digits' train_samples: 9 test_samples: 9 }");
  const DataSource trained = *OpenData(images);
  const JobSpec use = JobOfModel(Job("data { source: 'csv' }"), trained, EVALUATION);
  EXPECT_THAT(std::string(OpenData(use, CsvFile()).status().message()),
              HasSubstr("do not describe a table"));
}

TEST(DataRegistryTest, ErrorNamesTheMinimumLengthOfAText) {
  const std::string path = WriteFile(NewDirectory(), "t", std::string(109, 'x'));
  ExpectError("data { source: 'text' } model { transformer { context: 10 } }", path,
              absl::StatusCode::kInvalidArgument, "expected at least 110 bytes");
}

TEST(DataRegistryTest, ErrorNamesTheFaultOfATokenFile) {
  const std::string job = "data { source: 'tokens' } model { transformer { context: 8 } }";
  ExpectError(job, "", absl::StatusCode::kInvalidArgument,
              "the directory of train.bin and val.bin");
  const std::string directory = TokenDirectory();
  WriteFile(directory, "val.bin", std::string(16, 'x'));
  ExpectError(job, directory, absl::StatusCode::kInvalidArgument,
              "val.bin: expected at least 9 tokens, a sample of model.transformer.context = 8");
  std::filesystem::remove(directory + "/val.bin");
  ExpectError(job, directory, absl::StatusCode::kNotFound, "val.bin: expected a file of tokens");
  EXPECT_TRUE(OpenData(Job(job + " training { evaluate: false }"), directory).ok());
  WriteFile(directory, "train.bin", "odd");
  ExpectError(job, directory, absl::StatusCode::kDataLoss, "train.bin: expected tokens of 2 bytes");
}

TEST(DataRegistryTest, ErrorNamesAColumnWithoutValues) {
  const std::string path =
      WriteFile(NewDirectory(), "t.csv", "a,b,y\n1,,0\n2,,1\n3,,0\n4,,1\n5,,0\n");
  ExpectError("data { source: 'csv' csv { missing: COLUMN_MEAN } }", path,
              absl::StatusCode::kInvalidArgument, "feature column 1 (b), got missing ones only");
  ExpectError("data { source: 'csv' }", path, absl::StatusCode::kInvalidArgument,
              "line 2, column 1");
}

TEST(DataRegistryTest, ErrorForTextNamesTheMissingContextField) {
  ExpectError("data { source: 'text' } model { name: 'mine' }", "",
              absl::StatusCode::kInvalidArgument, "model.transformer.context");
}

}  // namespace
}  // namespace torchps
