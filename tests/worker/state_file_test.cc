#include "torchps/worker/state_file.h"

#include <caffe2/serialize/inline_container.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tests/checkpoint/pickle/python_state_dict.h"
#include "torch/nn/modules/batchnorm.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"
#include "torch/serialize.h"
#include "torch/utils.h"
#include "torchps/checkpoint/safetensors_file.h"
#include "torchps/storage/file_system.h"

namespace torchps {
namespace {

// Module with trained and frozen parameters, with float, integer and boolean buffers, and with one
// tensor that has two names.
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

TEST_F(StateFileTest, LoadsEachSavedType) {
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

TEST_F(StateFileTest, TheFileHasEachNameAndTheMetadata) {
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

TEST_F(StateFileTest, WritesOnlyTheRequestedTensors) {
  Everything module;
  const auto state =
      StateFile::Of(module, {}, [](const std::string& name) { return name == "frozen"; });
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->size(), 1u);
}

TEST_F(StateFileTest, ErrorNamesEachDifferenceAndNothingIsLoaded) {
  Everything wide(/*width=*/5);
  wide.register_buffer("more", torch::zeros({1}));
  ASSERT_TRUE(SaveState(wide, Path("wide.safetensors")).ok());
  Everything module;
  const torch::Tensor before = module.body->bias.clone();
  const std::string why = Refusal(module, "wide.safetensors");
  EXPECT_NE(why.find("it has 'more', which the module lacks"), std::string::npos) << why;
  EXPECT_NE(
      why.find("'body.weight' is [5, 4] of Float in the file and [3, 4] of Float in the module"),
      std::string::npos)
      << why;
  EXPECT_TRUE(torch::equal(before, module.body->bias));
}

TEST_F(StateFileTest, LoadsABackboneIntoAModuleWithANewHead) {
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

TEST_F(StateFileTest, RefusesAFileWithoutCommonNames) {
  torch::nn::Linear other(2, 2);
  ASSERT_TRUE(SaveState(*other, Path("other.safetensors")).ok());
  Everything module;
  EXPECT_FALSE(LoadState(module, Path("other.safetensors"), Match::kCommon).ok());
}

TEST_F(StateFileTest, ErrorExplainsAMissingOrInvalidFile) {
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

// The module whose state dict python_state_dict.h contains.
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
std::string GetBytes(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

// The parts of the file that Python's torch.save() writes for that state dict.
struct PythonFile {
  std::string weight = GetBytes<float>({1, 2, 3, 4});
  std::string steps = GetBytes<int64_t>({7});
  absl::string_view steps_storage = "LongStorage";
  absl::string_view byte_order = "little";
};

void WritePythonFile(const std::string& path, const PythonFile& file) {
  std::string pickle;
  ASSERT_TRUE(absl::Base64Unescape(testing::kPythonStateDict, &pickle));
  ASSERT_EQ(file.steps_storage.size(), 11u);  // its length comes before it in the pickle
  pickle = absl::StrReplaceAll(pickle, {{"LongStorage", file.steps_storage}});
  caffe2::serialize::PyTorchStreamWriter zip(path);  // Python's torch.save uses this class
  zip.writeRecord("data.pkl", pickle.data(), pickle.size());
  zip.writeRecord("byteorder", file.byte_order.data(), file.byte_order.size());
  zip.writeRecord("data/0", file.weight.data(), file.weight.size());
  zip.writeRecord("data/1", file.steps.data(), file.steps.size());
  zip.writeEndOfFile();
}

TEST_F(StateFileTest, LoadsAStateDictSavedByPython) {
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

TEST_F(StateFileTest, RefusesAStateDictWithTruncatedValues) {
  PythonFile file;
  file.weight = "three";
  WritePythonFile(Path("cut.pt"), file);
  Python module;
  const absl::Status loaded = LoadState(module, Path("cut.pt"));
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_NE(loaded.message().find("cut.pt"), std::string::npos) << loaded;
}

TEST_F(StateFileTest, LoadsNothingFromADamagedFile) {
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

TEST_F(StateFileTest, RefusesACompressedArchive) {
  WritePythonFile(Path("stored.pt"), PythonFile());
  const auto files = MakePosixFileSystem();
  absl::StatusOr<std::string> bytes = ReadWholeFile(*files, Path("stored.pt"), 1 << 20);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  (*bytes)[bytes->find("PK\1\2") + 10] = 8;  // deflated
  ASSERT_TRUE(WriteFileAtomically(*files, Path("deflated.pt"), *bytes).ok());
  Python module;
  const absl::Status loaded = LoadState(module, Path("deflated.pt"));
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_NE(loaded.message().find("'stored/data.pkl' is compressed"), std::string::npos) << loaded;
}

TEST_F(StateFileTest, RefusesAnInvalidBoolean) {
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

TEST_F(StateFileTest, RefusesBigEndianNumbers) {
  PythonFile file;
  file.byte_order = "big";
  WritePythonFile(Path("big.pt"), file);
  Python module;
  const absl::Status loaded = LoadState(module, Path("big.pt"));
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_NE(loaded.message().find("big-endian"), std::string::npos) << loaded;
}

TEST_F(StateFileTest, RefusesAnArchiveOfTorchSaveInCpp) {
  // With this many layers, torch compresses the code of the layers in the archive.
  torch::nn::Sequential layers;
  for (int i = 0; i < 20; ++i) layers->push_back(torch::nn::Linear(2, 2));
  torch::save(layers, Path("cpp.pt"));
  Everything module;
  const absl::Status loaded = LoadState(module, Path("cpp.pt"));
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_NE(loaded.message().find("torchps::SaveState"), std::string::npos) << loaded;
}

// Module with one buffer.
struct One : torch::nn::Module {
  explicit One(const torch::Tensor& value) : x(register_buffer("x", value)) {}
  torch::Tensor x;
};

const torch::ScalarType kFloatTypes[] = {torch::kFloat16, torch::kBFloat16, torch::kFloat32,
                                         torch::kFloat64};

TEST_F(StateFileTest, ConvertsFloatingPointNumbers) {
  const torch::Tensor numbers = torch::tensor({0.1, -3.0, 1e-3}, torch::kFloat64);
  for (const torch::ScalarType from : kFloatTypes) {
    ASSERT_TRUE(SaveState(One(numbers.to(from)), Path("from.safetensors")).ok());
    for (const torch::ScalarType to : kFloatTypes) {
      One module(torch::zeros({3}, to));
      const absl::Status loaded = LoadState(module, Path("from.safetensors"));
      ASSERT_TRUE(loaded.ok()) << loaded;
      EXPECT_EQ(module.x.scalar_type(), to);
      EXPECT_TRUE(torch::equal(module.x, numbers.to(from).to(to))) << from << " to " << to;
    }
  }
}

TEST_F(StateFileTest, OtherConversionsMustKeepEachValue) {
  const auto load = [this](double value, torch::ScalarType from, torch::ScalarType to) {
    EXPECT_TRUE(SaveState(One(torch::full({2}, value, from)), Path("kept.safetensors")).ok());
    One module(torch::zeros({2}, to));
    const absl::Status loaded = LoadState(module, Path("kept.safetensors"));
    EXPECT_TRUE(torch::equal(module.x, torch::full({2}, loaded.ok() ? value : 0, to)));
    return std::string(loaded.message());
  };
  EXPECT_EQ(load(200, torch::kInt64, torch::kUInt8), "");
  EXPECT_EQ(load(2, torch::kInt8, torch::kFloat32), "");
  EXPECT_EQ(load(2, torch::kFloat32, torch::kInt64), "");
  EXPECT_EQ(load(1, torch::kBool, torch::kInt16), "");
  for (const std::string& why :
       {load(300, torch::kInt64, torch::kUInt8), load(16777217, torch::kInt64, torch::kFloat32),
        load(2.5, torch::kFloat32, torch::kInt64), load(2, torch::kUInt8, torch::kBool)}) {
    EXPECT_NE(why.find("'x' has numbers of "), std::string::npos) << why;
  }
  EXPECT_NE(load(1, torch::kComplexFloat, torch::kFloat32).find("'x' is [2] of ComplexFloat"),
            std::string::npos);
}

// Writes a safetensors file with a float "x" of 1 and a tensor of another dtype.
void WriteForeign(const std::string& path, const std::string& other) {
  std::string header =
      R"({"__metadata__":null,"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"note":{}},")" +
      other + R"(":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[4,8]}})";
  const uint64_t length = header.size();
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&length), 8)
                                        << header << GetBytes<float>({1.0F, 0.0F});
}

TEST_F(StateFileTest, SkipsAnUnknownDtypeUnlessRequested) {
  WriteForeign(Path("foreign.safetensors"), "scale");
  One module(torch::zeros({1}));
  const absl::Status loaded = LoadState(module, Path("foreign.safetensors"));
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(module.x.item<float>(), 1.0F);
  module.register_buffer("scale", torch::zeros({4}));
  EXPECT_NE(Refusal(module, "foreign.safetensors").find("'scale' is of dtype F8_E4M3"),
            std::string::npos);
}

TEST_F(StateFileTest, TheContentsDecideTheFormat) {
  ASSERT_TRUE(SaveState(One(torch::ones({1})), Path("safetensors.pt")).ok());
  One one(torch::zeros({1}));
  EXPECT_TRUE(LoadState(one, Path("safetensors.pt")).ok());
  EXPECT_EQ(one.x.item<float>(), 1.0F);
  WritePythonFile(Path("pytorch_model.bin"), PythonFile());
  Python python;
  const absl::Status loaded = LoadState(python, Path("pytorch_model.bin"));
  EXPECT_TRUE(loaded.ok()) << loaded;

  struct Wrong {
    std::string contents;
    const char* words;
  };
  for (const Wrong& wrong :
       {Wrong{"\x80\x02\x8a\x0al\xfc\x9c", "torch.save(torch.load("},
        Wrong{"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
        Wrong{"{\"architectures\": []}", "weight_map"}, Wrong{"", "torch.save(module"}}) {
    std::ofstream(Path("wrong.bin"), std::ios::binary) << wrong.contents;
    const absl::Status refused = LoadState(one, Path("wrong.bin"));
    EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
    EXPECT_NE(refused.message().find(wrong.words), std::string::npos) << refused;
  }
}

TEST_F(StateFileTest, ErrorSuggestsThePrefixToAddOrRemove) {
  const auto wrapped = [](const std::string& name) {
    torch::nn::Module outer;
    outer.register_module(name, std::make_shared<Everything>());
    return outer;
  };
  Everything plain;
  for (const std::string name : {"module", "_orig_mod", "backbone"}) {
    ASSERT_TRUE(SaveState(wrapped(name), Path("wrapped.safetensors")).ok());
    const std::string why = Refusal(plain, "wrapped.safetensors");
    EXPECT_NE(why.find("k.removeprefix('" + name + ".'): v for k, v in"), std::string::npos) << why;
  }
  ASSERT_TRUE(SaveState(plain, Path("plain.safetensors")).ok());
  torch::nn::Module outer = wrapped("model");
  const std::string why = Refusal(outer, "plain.safetensors");
  EXPECT_NE(why.find("{'model.' + k: v"), std::string::npos) << why;
  Everything wide(5);
  EXPECT_EQ(Refusal(wide, "plain.safetensors").find("prefix"), std::string::npos);
}

TEST_F(StateFileTest, AnIndexLoadsItsShards) {
  struct Two : One {
    Two() : One(torch::zeros({1})) { y = register_buffer("y", torch::zeros({1})); }
    torch::Tensor y;
  } module;
  module.x.fill_(1);
  module.y.fill_(2);
  ASSERT_TRUE(SaveState(module, Path("a.safetensors")).ok());
  module.x.fill_(3);
  ASSERT_TRUE(SaveState(module, Path("b.safetensors")).ok());
  const auto load = [&](const std::string& y) {
    std::ofstream(Path("index.json"))
        << R"( {"metadata": {}, "weight_map": {"x": "a.safetensors", "y": ")" << y << "\"}}";
    module.y.zero_();
    return LoadState(module, Path("index.json"));
  };
  const absl::Status loaded = load("b.safetensors");
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(module.x.item<float>(), 1.0F);
  EXPECT_EQ(module.y.item<float>(), 2.0F);
  EXPECT_TRUE(absl::IsNotFound(load("c.safetensors")));
  EXPECT_TRUE(absl::IsDataLoss(load("../b.safetensors")));
  ASSERT_TRUE(SaveState(One(torch::ones({1})), Path("b.safetensors")).ok());
  EXPECT_NE(load("b.safetensors").message().find("places 'y' in the shard b.safetensors"),
            std::string::npos);
}

// Contains a buffer of each type, and a view with a lazy conjugation.
struct Constants : torch::nn::Module {
  explicit Constants(double value) {
    for (const torch::ScalarType type : {torch::kFloat16, torch::kBFloat16, torch::kFloat64}) {
      register_buffer(torch::toString(type), torch::full({3}, value, type));
    }
    const torch::Tensor turn = torch::polar(torch::ones({2, 3}), torch::full({2, 3}, value));
    register_buffer("c64", turn);
    register_buffer("c128", turn.to(torch::kComplexDouble).t());
    register_buffer("conj", turn.conj());
    register_buffer("neg", torch::imag(turn.conj()));
  }
};

TEST_F(StateFileTest, BuffersOfEachTypeSurviveSave) {
  const Constants saved(0.3);
  ASSERT_TRUE(SaveState(saved, Path("constants.safetensors"), {{"k", "v"}}).ok());
  Constants loaded(0.5);
  const absl::Status status = LoadState(loaded, Path("constants.safetensors"));
  ASSERT_TRUE(status.ok()) << status;
  ExpectSameState(saved, loaded);
}

TEST_F(StateFileTest, RefusesToSaveASparseTensorByName) {
  Everything module;
  module.register_buffer("thin", torch::zeros({2, 2}).to_sparse());
  const absl::Status saved = SaveState(module, Path("sparse.safetensors"));
  EXPECT_TRUE(absl::IsInvalidArgument(saved));
  EXPECT_NE(saved.message().find("'thin'"), std::string::npos) << saved;
}

}  // namespace
}  // namespace torchps
