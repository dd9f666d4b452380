#include "torchps/checkpoint/pickle/state_dict_pickle.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/checkpoint/pickle/python_state_dict.h"

namespace {

// The memory that operator new has given out, and its peak.
size_t used_bytes = 0;
size_t peak_bytes = 0;

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  used_bytes += malloc_usable_size(memory);
  peak_bytes = std::max(peak_bytes, used_bytes);
  return memory;
}

void operator delete(void* memory) noexcept {
  used_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace torchps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Parses a pickle that is the whole file.
absl::StatusOr<std::vector<PickledTensor>> Parse(const std::string& pickle) {
  return ParseStateDictPickle(pickle, static_cast<int64_t>(pickle.size()));
}

std::string PythonPickle() {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(testing::kPythonStateDict, &bytes));
  return bytes;
}

std::string WhyNot(const std::string& pickle) {
  const auto tensors = Parse(pickle);
  EXPECT_TRUE(absl::IsDataLoss(tensors.status())) << tensors.status();
  return std::string(tensors.status().message());
}

// Returns a pickled tensor with the given shape and strides over four floats.
std::string Tensor(const std::string& shape, const std::string& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((X\x07" + std::string(3, '\0') +
         "storagectorch\nFloatStorage\nX\x01" + std::string(3, '\0') + "0X\x03" +
         std::string(3, '\0') + "cpuK\x04tQK" + std::string(1, '\0') + "(" + shape + "t(" +
         strides + "t\x89)tR";
}

std::string Named(const std::string& value) {
  return "\x80\x02}X\x01" + std::string(3, '\0') + "w" + value + "s.";
}

TEST(StateDictPickleTest, ReadsAnOrderedDictInOrder) {
  const auto tensors = Parse(PythonPickle());
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[0].name, "tied");
  EXPECT_EQ((*tensors)[0].storage, "0");
  EXPECT_EQ((*tensors)[1].name, "steps");
  EXPECT_EQ((*tensors)[1].dtype, Dtype::kI64);
  EXPECT_EQ((*tensors)[1].storage, "1");
  EXPECT_EQ((*tensors)[1].storage_elements, 1);
  EXPECT_THAT((*tensors)[1].shape, IsEmpty());
  EXPECT_EQ((*tensors)[2].name, "body.weight");
  EXPECT_EQ((*tensors)[2].dtype, Dtype::kF32);
  EXPECT_EQ((*tensors)[2].storage, "0");
  EXPECT_EQ((*tensors)[2].storage_elements, 4);
  EXPECT_THAT((*tensors)[2].shape, ElementsAre(2, 2));
  EXPECT_THAT((*tensors)[2].strides, ElementsAre(2, 1));
}

TEST(StateDictPickleTest, ReadsAPlainDictionary) {
  const auto tensors = Parse(Named(Tensor("K\x04", "K\x01")));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 1u);
  EXPECT_EQ((*tensors)[0].name, "w");
  EXPECT_THAT((*tensors)[0].shape, ElementsAre(4));
}

TEST(StateDictPickleTest, RejectsAViewBeyondItsStorage) {
  EXPECT_THAT(WhyNot(Named(Tensor("K\x05", "K\x01"))), HasSubstr("damaged"));
  EXPECT_THAT(WhyNot(Named(Tensor("K\x02K\x03", "K\x02K\x01"))), HasSubstr("damaged"));
  // A stride of -1, and a shape whose number of elements overflows.
  const std::string minus_one = "J\xff\xff\xff\xff";
  EXPECT_THAT(WhyNot(Named(Tensor("K\x02", minus_one))), HasSubstr("damaged"));
  const std::string large = "J\xff\xff\xff\x7f";
  const std::string none = std::string("K\0", 2);
  EXPECT_THAT(WhyNot(Named(Tensor(large + large + large, none + none + none))),
              HasSubstr("damaged"));
}

TEST(StateDictPickleTest, ARepeatedNameKeepsItsLastValue) {
  const std::string name = "X\x01" + std::string(3, '\0');
  const auto tensors =
      Parse("\x80\x02}(" + name + "a" + Tensor("K\x04", "K\x01") + name + "b" +
            Tensor("K\x03", "K\x01") + name + "a" + Tensor("K\x02", "K\x01") + "u.");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_THAT((*tensors)[0].shape, ElementsAre(2));
  EXPECT_EQ((*tensors)[1].name, "b");
}

// Two bytes can repeat a long value that a memo holds. So the parser must not copy a value at each
// use.
TEST(StateDictPickleTest, RepeatedMemosUseNoExtraMemory) {
  constexpr size_t kLong = 100000;
  constexpr int kTimes = 50000;
  const auto repeated = [](const std::string& text) {
    std::string all;
    for (int i = 0; i < kTimes; ++i) all += text;
    return all;
  };
  const auto length_of = [](size_t size) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(size >> (8 * i));
    return bytes;
  };
  const std::string zero(1, '\0');
  // This tensor has many dimensions. Memo 0 holds the function that builds it, memo 1 the
  // arguments.
  std::string ones;
  for (size_t i = 0; i < kLong; ++i) ones += "K\x01";
  std::string deep = Tensor(ones, ones);
  deep.pop_back();  // removes the instruction that calls the function
  deep.insert(deep.find("((X"), "q" + zero);
  EXPECT_THAT(WhyNot("\x80\x02" + deep + "q\x01" + "R" + repeated("h" + zero + "h\x01R") + "."),
              HasSubstr("damaged"));
  // Repeats a storage with a long key.
  const std::string id = "(X\x07" + std::string(3, '\0') + "storagectorch\nFloatStorage\nX" +
                         length_of(kLong) + std::string(kLong, '7') + "NK\x04t";
  EXPECT_THAT(WhyNot("\x80\x02" + id + "q" + zero + repeated("h" + zero + "Q") + "."),
              HasSubstr("damaged"));
  // Repeats a long name.
  const std::string name = "X" + length_of(kLong) + std::string(kLong, 'n');
  EXPECT_THAT(WhyNot("\x80\x02}(" + name + "q" + zero + Tensor("K\x04", "K\x01") + "q\x01" +
                     repeated("h" + zero + "h\x01") + "u."),
              HasSubstr("damaged"));
  EXPECT_THAT(WhyNot(std::string(40 << 20, 'N')), HasSubstr("bytes, more than"));
}

// One byte can make an object of 100 bytes, and five bytes a tensor of a kilobyte.
TEST(StateDictPickleTest, RefusesAPickleWhoseObjectsExceedTheMemory) {
  constexpr size_t kFile = size_t{1} << 20;
  constexpr size_t kMemory = (size_t{32} << 20) + 8 * kFile;
  const auto filled = [](std::string pickle, const std::string& part) {
    while (pickle.size() < kFile) pickle += part;
    return pickle + ".";
  };
  const std::string zero(1, '\0');
  std::string ones;
  for (int i = 0; i < 64; ++i) ones += "K\x01";
  std::string tensor = Tensor(ones, ones);
  tensor.pop_back();
  tensor.insert(tensor.find("((X"), "q" + zero);
  std::string storage = tensor.substr(tensor.find("(X"));
  storage = storage.substr(0, storage.find('Q'));
  std::string names;
  for (int i = 0; names.size() < kFile; ++i) {
    names += "\x8c\x03" + std::string(reinterpret_cast<const char*>(&i), 3) + "h\x02";
  }
  const std::vector<std::string> pickles = {
      filled("\x80\x02", "}"),      // dictionaries on the stack
      filled("\x80\x02", "("),      // marks
      filled("\x80\x02)", "\x85"),  // nested tuples
      filled("\x80\x02)", "\x94"),  // memos
      filled("\x80\x02}", "NNs"),   // items
      filled("\x80\x02" + storage + "q" + zero, "h" + zero + "Q"),
      filled("\x80\x02" + tensor + "q\x01R", "h" + zero + "h\x01R"),
      "\x80\x02" + tensor + "Rq\x02}(" + names + "u.",  // one tensor by many names
  };
  for (const std::string& pickle : pickles) {
    const size_t before = used_bytes;
    peak_bytes = before;
    EXPECT_EQ(WhyNot(pickle), "its pickle needs more than 40 MiB of memory") << pickle[2];
    EXPECT_LE(peak_bytes - before, kMemory) << pickle[2];
    EXPECT_GE(peak_bytes - before, kMemory / 8) << "the limit is far from the use: " << pickle[2];
  }
}

TEST(StateDictPickleTest, RejectsAPickleWithoutNamedTensors) {
  EXPECT_EQ(WhyNot(Named("}")), "it does not contain named tensors: 'w' is a dictionary");
  EXPECT_EQ(WhyNot(Named("K\x05")), "it does not contain named tensors: 'w' is a number");
  EXPECT_EQ(WhyNot("\x80\x02"
                   "c__main__\nNet\n)\x81}b."),
            "it contains __main__.Net instead of a dictionary");
  EXPECT_EQ(WhyNot("\x80\x02K\x05."), "it does not contain a dictionary");
}

// Returns a dictionary of `items`, each a key of one letter and a value.
std::string Dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string text = "}(";
  for (const auto& [key, value] : items) text += "X\x01" + std::string(3, '\0') + key + value;
  return text + "u";
}

TEST(StateDictPickleTest, ErrorSuggestsTheNestedStateDictToSave) {
  const std::string tensor = Tensor("K\x04", "K\x01");
  const std::string state = Dict({{"a", tensor}, {"b", tensor}});
  // The checkpoint also contains an epoch, a random seed of 9 bytes, bytes, a set, and an optimizer
  // with numbers as keys.
  const std::string others = "X\x01" + std::string(3, '\0') + "o}K\x01" + state + "s";
  const std::string checkpoint = "\x80\x02" + Dict({{"e", "K\x05"},
                                                    {"r", "\x8a\x09" + std::string(9, '\1')},
                                                    {"y", "C\x02xy"},
                                                    {"t", "\x8f(K\x01\x90"},
                                                    {"n", Dict({{"m", state}})}});
  EXPECT_THAT(WhyNot(checkpoint + others + "s."),
              HasSubstr("torch.save(checkpoint['n']['m'], file)"));
}

TEST(StateDictPickleTest, SkipsEntriesThatAreNotTensors) {
  std::string quantized = Tensor("K\x04", "K\x01");
  quantized.replace(quantized.find("FloatStorage"), 12, "QInt8Storage");
  const auto tensors = Parse("\x80\x02" +
                             Dict({{"e", "K\x05"},
                                   {"q", quantized},
                                   {"s", "ctorch._utils\n_rebuild_sparse_tensor\n)R"},
                                   {"w", Tensor("K\x04", "K\x01")}}) +
                             ".");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[0].other_dtype, "QInt8Storage");
  EXPECT_EQ((*tensors)[1].other_dtype, "_rebuild_sparse_tensor");
  EXPECT_EQ((*tensors)[1].dtype, Dtype::kOther);
  EXPECT_EQ((*tensors)[2].dtype, Dtype::kF32);
}

// Any input must return, with bounded memory.
TEST(StateDictPickleTest, DamagedBytesNeverCrash) {
  const std::string whole = PythonPickle();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(Parse(whole.substr(0, length)).ok()) << length;
  }
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 3; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    Parse(damaged).status().IgnoreError();
  }
  // Nests a million tuples.
  EXPECT_FALSE(Parse(")" + std::string(1000000, '\x85') + ".").ok());
  // The dictionary contains itself.
  EXPECT_THAT(WhyNot(std::string("}q\0X\1\0\0\0ah\0s.", 14)), HasSubstr("'a' is a dictionary"));
}

}  // namespace
}  // namespace torchps
