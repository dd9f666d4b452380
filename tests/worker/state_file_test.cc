#include "worker/state_file.h"

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "checkpoint/safetensors_reader.h"
#include "checkpoint/stored_zip.h"
#include "gtest/gtest.h"
#include "storage/file_system.h"
#include "tests/checkpoint/pickle/python_state_dict.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"
#include "torch/serialize.h"
#include "torch/utils.h"

namespace torchps {
namespace {

// Everything that a state_dict may have: trained and frozen parameters, float, integer and boolean
// buffers, and one tensor under two names.
struct Everything : torch::nn::Module {
  explicit Everything(int64_t width = 3)
      : body(register_module("body", torch::nn::Linear(4, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        head(register_module("head", torch::nn::Linear(width, 4))) {
    frozen = register_parameter("frozen", torch::randn({2, 2}), /*requires_grad=*/false);
    mask = register_buffer("mask", torch::tensor({true, false, true}));
    tied = register_parameter("tied", body->weight);
  }
  torch::nn::Linear body;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear head;
  torch::Tensor frozen, mask, tied;
};

class StateFileTest : public ::testing::Test {
 protected:
  StateFileTest() { std::filesystem::create_directories(::testing::TempDir()); }

  std::string Path(const std::string& name) const { return ::testing::TempDir() + "/" + name; }
  std::string Refusal(torch::nn::Module& module, const std::string& name) {
    const absl::Status loaded = LoadState(module, Path(name));
    EXPECT_TRUE(absl::IsInvalidArgument(loaded)) << loaded;
    return std::string(loaded.message());
  }
};

void ExpectSameState(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto parameters = b.named_parameters();
  for (const auto& item : a.named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), parameters[item.key()])) << item.key();
  }
  const auto buffers = b.named_buffers();
  for (const auto& item : a.named_buffers()) {
    EXPECT_TRUE(torch::equal(item.value(), buffers[item.key()])) << item.key();
  }
}

TEST_F(StateFileTest, WhatIsSavedIsLoadedWhateverItsType) {
  torch::manual_seed(1);
  Everything saved;
  saved.norm->num_batches_tracked.fill_(41);
  saved.norm->running_mean.uniform_();
  ASSERT_TRUE(SaveState(saved, Path("all.safetensors"), {{"epoch", "3"}}).ok());
  torch::manual_seed(2);
  Everything loaded;
  ASSERT_FALSE(torch::equal(saved.frozen, loaded.frozen));
  const absl::Status status = LoadState(loaded, Path("all.safetensors"));
  ASSERT_TRUE(status.ok()) << status;
  ExpectSameState(saved, loaded);
  EXPECT_EQ(loaded.norm->num_batches_tracked.item<int64_t>(), 41);
}

TEST_F(StateFileTest, TheFileHasEveryNameAndTheMetadata) {
  Everything module;
  ASSERT_TRUE(SaveState(module, Path("names.safetensors"), {{"epoch", "3"}}).ok());
  const auto files = MakePosixFileSystem();
  const auto reader = SafetensorsReader::Open(files.get(), Path("names.safetensors"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::map<std::string, Dtype> found;
  for (const TensorInfo& info : (*reader)->tensors()) found[info.name] = info.dtype;
  const std::map<std::string, Dtype> expected = {{"body.weight", Dtype::kF32},
                                                 {"body.bias", Dtype::kF32},
                                                 {"head.weight", Dtype::kF32},
                                                 {"head.bias", Dtype::kF32},
                                                 {"norm.weight", Dtype::kF32},
                                                 {"norm.bias", Dtype::kF32},
                                                 {"norm.running_mean", Dtype::kF32},
                                                 {"norm.running_var", Dtype::kF32},
                                                 {"frozen", Dtype::kF32},
                                                 {"tied", Dtype::kF32},
                                                 {"mask", Dtype::kBOOL},
                                                 {"norm.num_batches_tracked", Dtype::kI64}};
  EXPECT_EQ(found, expected);
  EXPECT_EQ((*reader)->metadata().at("epoch"), "3");
  EXPECT_EQ((*reader)->metadata().at("format"), "pt");
}

TEST_F(StateFileTest, PiecesOfAnySizeMakeTheSameFile) {
  Everything module;
  const auto state = StateFile::Of(module, {});
  ASSERT_TRUE(state.ok()) << state.status();
  std::string whole;
  for (const size_t most : {size_t{1} << 20, size_t{7}}) {
    std::string bytes;
    const absl::Status read = state->Read(most, [&](int64_t offset, absl::string_view piece) {
      EXPECT_EQ(offset, static_cast<int64_t>(bytes.size()));
      EXPECT_LE(piece.size(), most);
      absl::StrAppend(&bytes, piece);
      return absl::OkStatus();
    });
    ASSERT_TRUE(read.ok()) << read;
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), state->bytes());
    if (whole.empty()) whole = bytes;
    EXPECT_EQ(bytes, whole);
  }
}

TEST_F(StateFileTest, OnlyWhatIsWantedIsWritten) {
  Everything module;
  const auto state =
      StateFile::Of(module, {}, [](const std::string& name) { return name == "frozen"; });
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->size(), 1u);
}

TEST_F(StateFileTest, EveryDifferenceIsNamedAndNothingIsLoaded) {
  Everything wide(/*width=*/5);
  wide.register_buffer("more", torch::zeros({1}));
  ASSERT_TRUE(SaveState(wide, Path("wide.safetensors")).ok());
  Everything module;
  const torch::Tensor before = module.body->bias.clone();
  const std::string why = Refusal(module, "wide.safetensors");
  EXPECT_NE(why.find("it has 'more', which the module has not"), std::string::npos) << why;
  EXPECT_NE(why.find("'body.weight' is [5, 4] of Float there and [3, 4] of Float in the module"),
            std::string::npos)
      << why;
  EXPECT_TRUE(torch::equal(before, module.body->bias));
}

TEST_F(StateFileTest, ABackboneFitsUnderANewHead) {
  torch::manual_seed(3);
  Everything trained;
  const auto backbone = StateFile::Of(
      trained, {}, [](const std::string& name) { return name.rfind("head", 0) != 0; });
  ASSERT_TRUE(backbone.ok()) << backbone.status();
  std::ofstream file(Path("backbone.safetensors"), std::ios::binary);
  ASSERT_TRUE(backbone
                  ->Read(1 << 20,
                         [&](int64_t, absl::string_view piece) {
                           file << piece;
                           return absl::OkStatus();
                         })
                  .ok());
  file.close();
  Everything module;
  EXPECT_NE(Refusal(module, "backbone.safetensors").find("it lacks 'head.weight', 'head.bias'"),
            std::string::npos);
  std::vector<std::string> unmatched;
  const absl::Status loaded =
      LoadState(module, Path("backbone.safetensors"), Match::kCommon, &unmatched);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(unmatched, (std::vector<std::string>{"head.weight", "head.bias"}));
  EXPECT_TRUE(torch::equal(module.frozen, trained.frozen));
  EXPECT_FALSE(torch::equal(module.head->weight, trained.head->weight));
}

TEST_F(StateFileTest, AFileWithoutAnyCommonNameFitsNoModule) {
  torch::nn::Linear other(2, 2);
  ASSERT_TRUE(SaveState(*other, Path("other.safetensors")).ok());
  Everything module;
  EXPECT_FALSE(LoadState(module, Path("other.safetensors"), Match::kCommon).ok());
}

TEST_F(StateFileTest, WhatIsNoSuchFileIsSaidInASentence) {
  Everything module;
  EXPECT_TRUE(absl::IsNotFound(LoadState(module, Path("none.safetensors"))));
  std::ofstream(Path("noise.safetensors")) << "this is no such file";
  EXPECT_TRUE(absl::IsDataLoss(LoadState(module, Path("noise.safetensors"))));
  std::ofstream(Path("noise.pt")) << "neither is this";
  EXPECT_TRUE(absl::IsNotFound(LoadState(module, Path("none.pt"))));
  const absl::Status pickle = LoadState(module, Path("noise.pt"));
  EXPECT_TRUE(absl::IsDataLoss(pickle)) << pickle;
  EXPECT_NE(pickle.message().find("torch.save(module.state_dict(), file)"), std::string::npos);
}

// The module that the file of python_state_dict.h is of.
struct Python : torch::nn::Module {
  Python()
      : body(register_module("body",
                             torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)))) {
    tied = register_parameter("tied", body->weight);
    steps = register_buffer("steps", torch::tensor(int64_t{0}));
  }
  torch::nn::Linear body;
  torch::Tensor tied, steps;
};

template <typename T>
std::string BytesOf(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

// What may be wrong with it.
struct PythonFile {
  std::string weight = BytesOf<float>({1, 2, 3, 4});
  std::string steps = BytesOf<int64_t>({7});
  absl::string_view steps_storage = "LongStorage";
  absl::string_view byte_order = "little";
};

void WritePythonFile(const std::string& path, const PythonFile& file) {
  std::string pickle;
  ASSERT_TRUE(absl::Base64Unescape(testing::kPythonStateDict, &pickle));
  ASSERT_EQ(file.steps_storage.size(), 11u);  // its length stands before it
  pickle = absl::StrReplaceAll(pickle, {{"LongStorage", file.steps_storage}});
  const auto files = MakePosixFileSystem();
  const auto zip = StoredZip::Create(files.get(), path);
  ASSERT_TRUE(zip.ok()) << zip.status();
  ASSERT_TRUE((*zip)->AddEntry("archive/data.pkl", pickle).ok());
  ASSERT_TRUE((*zip)->AddEntry("archive/byteorder", file.byte_order).ok());
  ASSERT_TRUE((*zip)->AddEntry("archive/data/0", file.weight).ok());
  ASSERT_TRUE((*zip)->AddEntry("archive/data/1", file.steps).ok());
  ASSERT_TRUE((*zip)->AddEntry("archive/version", "3\n").ok());
  ASSERT_TRUE((*zip)->Finish().ok());
}

TEST_F(StateFileTest, AStateDictThatPythonSavedIsLoaded) {
  WritePythonFile(Path("python.pt"), PythonFile());
  Python module;
  const absl::Status loaded = LoadState(module, Path("python.pt"));
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_TRUE(torch::equal(module.body->weight, torch::tensor({{1.0F, 2.0F}, {3.0F, 4.0F}})));
  EXPECT_EQ(module.steps.item<int64_t>(), 7);
  EXPECT_TRUE(module.body->weight.requires_grad());

  Everything other;
  EXPECT_NE(Refusal(other, "python.pt").find("'body.bias'"), std::string::npos);
}

TEST_F(StateFileTest, AStateDictWhoseValuesAreCutOffIsDamaged) {
  PythonFile file;
  file.weight = "three";
  WritePythonFile(Path("cut.pt"), file);
  Python module;
  const absl::Status loaded = LoadState(module, Path("cut.pt"));
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_NE(loaded.message().find("cut.pt"), std::string::npos) << loaded;
}

TEST_F(StateFileTest, OfAFileThatIsDamagedAtItsEndNothingIsLoaded) {
  PythonFile file;
  file.steps.pop_back();
  WritePythonFile(Path("end.pt"), file);
  Python module;
  const torch::Tensor before = module.body->weight.detach().clone();
  const absl::Status loaded = LoadState(module, Path("end.pt"));
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_NE(loaded.message().find("the values of 'steps' have 7 bytes"), std::string::npos)
      << loaded;
  EXPECT_TRUE(torch::equal(module.body->weight, before));
}

TEST_F(StateFileTest, AnArchiveThatInflatesIsNotRead) {
  WritePythonFile(Path("stored.pt"), PythonFile());
  const auto files = MakePosixFileSystem();
  absl::StatusOr<std::string> bytes = ReadWholeFile(*files, Path("stored.pt"), 1 << 20);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  (*bytes)[bytes->find("PK\1\2") + 10] = 8;  // deflated
  ASSERT_TRUE(WriteFileAtomically(*files, Path("deflated.pt"), *bytes).ok());
  Python module;
  const absl::Status loaded = LoadState(module, Path("deflated.pt"));
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_NE(loaded.message().find("'archive/data.pkl' is compressed"), std::string::npos) << loaded;
}

TEST_F(StateFileTest, ABooleanThatIsNoneIsNotLoaded) {
  PythonFile file;
  file.steps_storage = "BoolStorage";
  for (const char value : {1, 2}) {
    file.steps = std::string(1, value);
    WritePythonFile(Path("boolean.pt"), file);
    Python module;
    module.steps.set_data(torch::tensor(false));
    const absl::Status loaded = LoadState(module, Path("boolean.pt"));
    if (value == 1) {
      ASSERT_TRUE(loaded.ok()) << loaded;
      EXPECT_TRUE(module.steps.item<bool>());
      continue;
    }
    EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
    EXPECT_NE(loaded.message().find("'steps' has a boolean that is 2; expected 0 or 1"),
              std::string::npos)
        << loaded;
    EXPECT_FALSE(module.steps.item<bool>());
  }
}

TEST_F(StateFileTest, BigEndianNumbersAreRefused) {
  PythonFile file;
  file.byte_order = "big";
  WritePythonFile(Path("big.pt"), file);
  Python module;
  const absl::Status loaded = LoadState(module, Path("big.pt"));
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_NE(loaded.message().find("big-endian"), std::string::npos) << loaded;
}

TEST_F(StateFileTest, AnArchiveOfTorchSaveInCppIsNamed) {
  // So many layers that torch compresses what it writes of their code.
  torch::nn::Sequential layers;
  for (int i = 0; i < 20; ++i) layers->push_back(torch::nn::Linear(2, 2));
  torch::save(layers, Path("cpp.pt"));
  Everything module;
  const absl::Status loaded = LoadState(module, Path("cpp.pt"));
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_NE(loaded.message().find("torchps::SaveState"), std::string::npos) << loaded;
}

TEST_F(StateFileTest, ASparseTensorIsNamed) {
  Everything module;
  module.register_buffer("thin", torch::zeros({2, 2}).to_sparse());
  const absl::Status saved = SaveState(module, Path("sparse.safetensors"));
  EXPECT_TRUE(absl::IsInvalidArgument(saved));
  EXPECT_NE(saved.message().find("'thin'"), std::string::npos) << saved;
}

}  // namespace
}  // namespace torchps
