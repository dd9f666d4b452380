#include "torchps/tools/export_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/sample_checkpoint.h"
#include "tests/tools/testing.h"
#include "torchps/checkpoint/checkpoint_directory.h"
#include "torchps/checkpoint/safetensors_file.h"

namespace torchps {
namespace {

using ::testing::HasSubstr;

class ExportCommandTest : public ::testing::Test {
 protected:
  ExportCommandTest() : files_(MakePosixFileSystem()) {}

  int Run(const std::vector<std::string>& words) {
    const auto flags = FlagTable("psctl export", ExportFlags()).Parse(words);
    EXPECT_TRUE(flags.ok());
    out_.str("");
    error_.str("");
    return ExportCommand(*flags, out_, error_);
  }
  std::string Dir(const std::string& name) const {
    return absl::StrCat("--dir=", folder_.path(name));
  }
  std::string Out(const std::string& name) const {
    return absl::StrCat("--out=", folder_.path(name));
  }
  void Write(const std::string& directory, uint64_t checkpoint, const SampleModel& model) {
    ASSERT_EQ(WriteCheckpoint(*files_, folder_.path(directory), checkpoint, 3, model),
              absl::OkStatus());
  }

  const TestFolder folder_;
  const std::unique_ptr<FileSystem> files_;
  std::ostringstream out_;
  std::ostringstream error_;
};

// Writes the constants of a model, which the servers do not store: an integer buffer, a complex
// buffer, and the alias `tied` of a parameter.
void WriteConstants(FileSystem* files, const std::string& path, const std::string& tied,
                    const std::string& name = "count") {
  auto writer = SafetensorsWriter::Create(files, path, 1000);
  ASSERT_EQ(writer.status(), absl::OkStatus());
  (*writer)->BeginTensor("turn", Dtype::kC128, {1});
  ASSERT_EQ((*writer)->Append("a complex number"), absl::OkStatus());
  (*writer)->BeginTensor(name, Dtype::kI64, {});
  const int64_t count = 41;
  ASSERT_EQ((*writer)->Append({reinterpret_cast<const char*>(&count), sizeof(count)}),
            absl::OkStatus());
  ASSERT_EQ((*writer)->Finish({{"tied", tied}}).status(), absl::OkStatus());
}

TEST_F(ExportCommandTest, AddsTheConstantsToTheCheckpointsTensors) {
  const SampleModel model;
  Write("d", 7, model);
  const std::string first = model.layout.segments()[0].name;
  WriteConstants(files_.get(), folder_.path("d/constants.safetensors"),
                 absl::StrCat("{\"again\": \"", first, "\"}"));
  ASSERT_EQ(Run({Dir("d"), Out("model.safetensors")}), 0) << error_.str();
  const auto file = SafetensorsReader::Open(files_.get(), folder_.path("model.safetensors"));
  ASSERT_EQ(file.status(), absl::OkStatus());
  std::map<std::string, Dtype> dtypes;
  std::map<std::string, std::string> contents;
  for (size_t i = 0; i < (*file)->tensors().size(); ++i) {
    const TensorInfo& info = (*file)->tensors()[i];
    EXPECT_EQ(info.begin % DtypeBytes(info.dtype), 0) << info.name << " is aligned";
    dtypes[info.name] = info.dtype;
    std::string& bytes = contents[info.name];
    bytes.resize(static_cast<size_t>(info.end - info.begin));
    ASSERT_EQ((*file)->Read(i, absl::MakeSpan(&bytes[0], bytes.size())), absl::OkStatus());
  }
  EXPECT_EQ(contents.size(), model.layout.segments().size() + 3);
  EXPECT_EQ(dtypes["turn"], Dtype::kC128);
  EXPECT_EQ(contents["turn"], "a complex number");
  EXPECT_EQ(contents["again"], contents[first]);
  EXPECT_EQ(contents["count"], std::string("\x29\0\0\0\0\0\0\0", 8));
}

TEST_F(ExportCommandTest, FindsCheckpointsInTheRunsStateFolder) {
  Write("run/state", 7, SampleModel());
  for (const char* dir : {"run", "run/", "run/state", "run/state/checkpoint-000000000007"}) {
    EXPECT_EQ(Run({Dir(dir), Out("m.safetensors")}), 0) << dir << ": " << error_.str();
  }
}

TEST_F(ExportCommandTest, RejectsConstantsOfAnotherModel) {
  Write("d", 7, SampleModel());
  WriteConstants(files_.get(), folder_.path("d/constants.safetensors"), R"({"again": "nothing"})");
  EXPECT_EQ(Run({Dir("d"), Out("model.safetensors")}), 5);
  EXPECT_THAT(error_.str(), HasSubstr("'again' is tied to a missing tensor"));
}

// The safetensors format forbids duplicate names.
TEST_F(ExportCommandTest, RejectsConstantsThatTheCheckpointContains) {
  const SampleModel model;
  Write("d", 7, model);
  const std::string first = model.layout.segments()[0].name;
  const std::string second = model.layout.segments()[1].name;
  WriteConstants(files_.get(), folder_.path("d/constants.safetensors"),
                 absl::StrCat("{\"", second, "\": \"", first, "\"}"));
  EXPECT_EQ(Run({Dir("d"), Out("model.safetensors")}), 5);
  EXPECT_THAT(error_.str(), HasSubstr(absl::StrCat("'", second, "' is tied to another tensor")));

  WriteConstants(files_.get(), folder_.path("d/constants.safetensors"), "{}", second);
  EXPECT_EQ(Run({Dir("d"), Out("model.safetensors")}), 5);
  EXPECT_THAT(error_.str(), HasSubstr(absl::StrCat("'", second, "' is also in the checkpoint")));
}

TEST_F(ExportCommandTest, AcceptsTheFolderOfACheckpoint) {
  Write("d", 7, SampleModel());
  Write("d", 9, SampleModel());
  ASSERT_EQ(Run({Dir("d/checkpoint-000000000007"), Out("7.safetensors")}), 0) << error_.str();
  EXPECT_THAT(out_.str(), HasSubstr("wrote checkpoint 7 to "));
  ASSERT_EQ(Run({Dir("d/checkpoint-000000000007/"), Out("7.safetensors")}), 0) << error_.str();
}

TEST_F(ExportCommandTest, WritesTensorsUnderTheModulesNames) {
  const SampleModel model;
  Write("d", 7, model);
  ASSERT_EQ(Run({Dir("d"), Out("model.safetensors")}), 0) << error_.str();
  EXPECT_THAT(out_.str(), HasSubstr("wrote checkpoint 7 to "));
  EXPECT_THAT(out_.str(), HasSubstr("model.safetensors: 5 tensors, 1.8 KiB"));

  const auto file = SafetensorsReader::Open(files_.get(), folder_.path("model.safetensors"));
  ASSERT_EQ(file.status(), absl::OkStatus());
  ASSERT_EQ((*file)->tensors().size(), model.layout.segments().size());
  for (size_t i = 0; i < model.layout.segments().size(); ++i) {
    const Segment& segment = model.layout.segments()[i];
    EXPECT_EQ((*file)->tensors()[i].name, segment.name);
    EXPECT_EQ((*file)->tensors()[i].shape, segment.shape);
    std::vector<float> values(static_cast<size_t>(segment.length));
    ASSERT_EQ((*file)->Read(i, {reinterpret_cast<char*>(values.data()), values.size() * 4}),
              absl::OkStatus());
    EXPECT_EQ(values, std::vector<float>(model.values.begin() + segment.offset,
                                         model.values.begin() + segment.offset + segment.length));
  }
}

TEST_F(ExportCommandTest, ExportsTheNewestOrNamedCheckpoint) {
  SampleModel model;
  Write("d", 1, model);
  Write("d", 2, model);
  ASSERT_EQ(Run({Dir("d"), Out("m.safetensors")}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("wrote checkpoint 2 to"));
  ASSERT_EQ(Run({Dir("d"), Out("m.safetensors"), "--checkpoint=1"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("wrote checkpoint 1 to"));
  EXPECT_EQ(Run({Dir("d"), Out("m.safetensors"), "--checkpoint=3"}), 5);
  EXPECT_THAT(error_.str(), HasSubstr("there is no checkpoint 3 in "));
  EXPECT_THAT(error_.str(), HasSubstr("which has 1, 2"));
}

TEST_F(ExportCommandTest, SkipsADamagedCheckpointUnlessNamed) {
  const SampleModel model;
  Write("d", 1, model);
  Write("d", 2, model);
  const std::string shard = CheckpointDirectory(files_.get(), folder_.path("d")).ShardPath(2, 1, 3);
  ASSERT_EQ(WriteFileAtomically(*files_, shard, "hello"), absl::OkStatus());
  ASSERT_EQ(Run({Dir("d"), Out("m.safetensors")}), 0);
  EXPECT_THAT(error_.str(), HasSubstr("psctl: checkpoint 2 cannot be loaded: " + shard));
  EXPECT_THAT(out_.str(), HasSubstr("wrote checkpoint 1 to"));
  EXPECT_EQ(Run({Dir("d"), Out("m.safetensors"), "--checkpoint=2"}), 5);
}

TEST_F(ExportCommandTest, MergesSeparateServerDirectories) {
  const SampleModel model;
  Write("d0", 1, model);
  Write("d1", 1, model);
  const CheckpointDirectory d0(files_.get(), folder_.path("d0"));
  const CheckpointDirectory d1(files_.get(), folder_.path("d1"));
  ASSERT_EQ(files_->RemoveFile(d0.ShardPath(1, 1, 3)), absl::OkStatus());
  ASSERT_EQ(files_->RemoveFile(d1.ShardPath(1, 0, 3)), absl::OkStatus());
  EXPECT_EQ(Run({Dir("d0"), Out("m.safetensors")}), 5);
  EXPECT_THAT(error_.str(), HasSubstr("server-1-of-3.safetensors is not in"));
  EXPECT_EQ(Run({Dir("d0"), Dir("d1"), Out("m.safetensors")}), 0) << error_.str();
}

TEST_F(ExportCommandTest, ErrorNamesTheMissingOrWrongFlag) {
  EXPECT_EQ(Run({Out("m.safetensors")}), 2);
  EXPECT_THAT(error_.str(), HasSubstr("needs --dir=DIR"));
  EXPECT_EQ(Run({Dir("d")}), 2);
  EXPECT_THAT(error_.str(), HasSubstr("needs --out=FILE"));
  EXPECT_EQ(Run({Dir("d"), Out("model.onnx")}), 2);
  EXPECT_THAT(error_.str(), HasSubstr("model.onnx'; expected a name that ends in .safetensors\n"));
  EXPECT_EQ(Run({Dir("d"), "--out=a.b/m.pt"}), 2);
  EXPECT_EQ(error_.str(),
            "psctl: --out is 'a.b/m.pt'; expected a name that ends in .safetensors, which Python "
            "converts: import torch, safetensors.torch; "
            "torch.save(safetensors.torch.load_file('a.b/m.safetensors'), 'a.b/m.pt')\n");
  EXPECT_EQ(Run({Dir("d"), Out("m.safetensors")}), 5);
  EXPECT_THAT(error_.str(), HasSubstr("there is no folder " + folder_.path("d")));
  ASSERT_EQ(WriteFileAtomically(*files_, folder_.path("n.safetensors"), ""), absl::OkStatus());
  EXPECT_EQ(Run({Dir("n.safetensors"), Out("m.safetensors")}), 5);
  EXPECT_THAT(error_.str(), HasSubstr("there is no folder " + folder_.path("n.safetensors")));
  std::filesystem::create_directory(folder_.path("d"));
  EXPECT_EQ(Run({Dir("d"), Out("m.safetensors")}), 5);
  EXPECT_THAT(error_.str(), HasSubstr("there is no checkpoint in"));
}

TEST_F(ExportCommandTest, RejectsContradictoryFlags) {
  EXPECT_EQ(Run({Dir("d/checkpoint-000000000002"), Out("m.safetensors"), "--checkpoint=3"}), 2);
  EXPECT_THAT(error_.str(),
              HasSubstr(" names checkpoint 2, and another --dir or --checkpoint names "
                        "checkpoint 3; name one"));
  EXPECT_EQ(Run({Dir("d/checkpoint-000000000002"), Dir("e/checkpoint-000000000003"),
                 Out("m.safetensors")}),
            2);
}

TEST_F(ExportCommandTest, FailsIfTheFileCannotBeWritten) {
  Write("d", 1, SampleModel());
  EXPECT_EQ(Run({Dir("d"), Out("nowhere/m.safetensors")}), 1);
  EXPECT_THAT(error_.str(), HasSubstr("nowhere/m.safetensors.tmp: No such file or directory"));
}

}  // namespace
}  // namespace torchps
